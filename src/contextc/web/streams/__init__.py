"""Events as others read them, one file a vocabulary: from our events to theirs, and nothing else."""
