from speclab import decode as decode
from speclab import replay as replay
from speclab import score as score
from speclab import stats as stats
from speclab import verify as verify
from speclab.lab.enumeration import distance_of as distance_of
from speclab.models.pairs import pair_of as pair_of
from speclab.study.pairs import load_pair as load_pair
from speclab.study.runs import load_run as load_run
from speclab.tree import Tree as Tree

__all__: list[str]
MODULE_OF: dict[str, str]
