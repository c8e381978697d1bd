"""Hook of mkdocs: files of the site that its plugins do not write."""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from pygments.formatters import HtmlFormatter


def on_post_build(config: MkDocsConfig) -> None:
    """Write the search index as a script, since pages opened from disk cannot fetch JSON, and the
    style of highlighted code."""
    site = Path(config.site_dir)
    index = (site / "search/search_index.json").read_text()
    (site / "search/index.js").write_text(f"var searchIndex = {index};\n")
    style = HtmlFormatter(style="default").get_style_defs(".highlight")
    (site / "code.css").write_text(f"{style}\n")
