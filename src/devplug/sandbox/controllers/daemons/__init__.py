"""DaemonSets as rules on values: which pods there should be, on which nodes, and what the status says. Pure.

After pkg/controller/daemon. There are no ControllerRevisions: a revision is a hash of the template, and what
was there before is not kept.
"""
