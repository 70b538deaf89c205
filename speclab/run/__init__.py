"""How a notebook may end."""

DONE, FAILED = "done", "failed"
NEEDS_MODELS, NEEDS_FILES = "needs the models", "needs files"
LEFT_OUT = "left out"  # by the notebook itself: the study has too little for it
