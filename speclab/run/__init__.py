"""How a notebook may end."""

DONE, FAILED = "done", "failed"
NEEDS_MODELS = "needs the models"
LEFT_OUT = "left out"  # by the notebook itself: the study has too little for it
