"""How the AI SDK's body becomes ours: one function for each difference, which changes the body in place.

A function knows the conversation and never our body, so it cannot copy the answer from it. It touches nothing but the
place its difference is about; where it finds the SDK's way of saying it, it writes ours, and anything else it leaves.
"""
