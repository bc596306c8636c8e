"""One agent per node: it joins the emulated kubelet with the objects that people see.

What to do and what to tell is decided by pure rules here; the agent and its workers only do it.
"""
