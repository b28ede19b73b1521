"""Golden files of schema 6: what is stored and sent, recorded once, and compared with what today's code does.

`scenario` makes a store with every kind of row. `recordings`, `answers` and `names` make what the golden files hold.
`compare` finds the first difference. `python -m tests.golden.write` writes the files; no test runs it.
"""
