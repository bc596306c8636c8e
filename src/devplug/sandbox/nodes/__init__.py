"""The nodes: an agent for each, which joins the emulated kubelet with API objects and containers.

What to do and what to tell is decided by pure rules here; the agent and its workers only do it.
"""
