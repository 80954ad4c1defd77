"""`lrptrain wandb-workspace`: a view of a W&B project's monitored runs."""


def wandb_workspace(project: str, name: str | None = None, title: str = "Relevance") -> None:
    """Save a workspace view for monitored runs in a W&B project, and print its address.

    It has what the monitor logs, in sections: where the model looks, findings, samples, classes, guidance and cost.

    Args:
        project: `ENTITY/PROJECT`, as in the project's address.
        name: Name of the monitor, where it has one (`RelevanceMonitor(name=...)`).
        title: Title of the view.

    Raises:
        ImportError: If wandb-workspaces is not installed.
        ValueError: If the project is not named so, there is no key, or W&B does not take the view.
    """
    # Imported here: the help of a verb must not wait for what the verb needs.
    from lrptrain.loggers.wandb_workspace import save_workspace
    from lrptrain.monitor.summary import logged_metrics

    print(save_workspace(project, logged_metrics(), name, title))
