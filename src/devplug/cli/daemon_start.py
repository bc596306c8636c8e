"""The start of the daemon: what is left out of its memory, and `run` with what was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devplug.cli.startup import do_without_openssl, uncollected

if TYPE_CHECKING:
    from devplug.cli.run_options import RunOptions

__all__ = ["start_daemon"]


def start_daemon(options: RunOptions) -> int:
    """Serve a configuration until a signal; return the exit code."""
    with uncollected():
        from devplug.k8s.account import may_have_account

        # Where the labels of this Node may be asked for, now or after an edit, the API server speaks TLS.
        if not may_have_account():
            do_without_openssl()
        from devplug.cli.run import run
    return run(
        options.config,
        options.plugin_dir,
        options.pod_resources,
        cdi_dir=options.cdi_dir,
        listen=options.listen,
        log_level=options.log_level,
        log_format=options.log_format,
        kube_events=options.kube_events,
    )
