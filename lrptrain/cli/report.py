"""`lrptrain report`: runs as one HTML file."""

from pathlib import Path


def report(run: str, output: str = "report.html") -> None:
    """Write a run, or all runs below a folder, as one HTML file that opens without a network.

    It has everything of the page, but of each run maps and images of at most 200 samples, and masks of at most 24
    images.

    Args:
        run: Folder of a run (`<default_root_dir>/relevance/<run>`), or one that holds runs.
        output: The file to which the report is written.

    Raises:
        FileNotFoundError: If there is no such folder, or no run in it.
    """
    # Imported here: the help of a verb must not wait for what the verb needs.
    from lrptrain.dashboard.page import prepare_charts

    prepare_charts()  # beside the imports and the reading, which take as long
    from lrptrain.dashboard.report import write_html_report

    runs = write_html_report(Path(run), Path(output))
    megabytes = Path(output).stat().st_size / 1e6
    print(f"{output}: {len(runs)} run{'' if len(runs) == 1 else 's'}, {megabytes:.1f} MB")
