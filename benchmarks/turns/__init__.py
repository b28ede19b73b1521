"""Who runs the turn of `turn.py`: contextc and its peers, a file each with a class `Subject`, named as in the table."""
