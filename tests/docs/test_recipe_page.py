"""The table of recipe settings lists what `irli.Recipe` has, with the values of each recipe."""

from __future__ import annotations

import dataclasses

from pages import DOCS, bare, section, table

import irli
from irli.base.recipe import LabelSettings, PaperSwitches, Training, VectorSettings

PAGE = DOCS / "reference" / "recipe.md"
FIELDS = [field.name for field in dataclasses.fields(irli.Recipe)]
GROUPS = {
    "For all indexes": Training,
    "For vectors only": VectorSettings,
    "For labels only": LabelSettings,
    "Where to follow the paper": PaperSwitches,
}
NAMED = ("default", "paper", "paper-deep", "labels", "paper-labels", "paper-labels-sigmoid")


def test_every_setting_is_explained_in_its_group() -> None:
    for heading, group in GROUPS.items():
        rows = table(section(PAGE, f"### {heading}"), "setting", "meaning")
        assert [bare(name) for name, _ in rows] == [each.name for each in dataclasses.fields(group)]
        assert all(meaning for _, meaning in rows)


def test_the_page_tells_what_the_number_of_labels_decides() -> None:
    head = ("setting", "up to 2,048 labels", "more")
    rows = table(section(PAGE, "## The recipes for labels"), *head)
    for column, labels in ((1, 2048), (2, 2049)):
        recipe = irli.recipe("labels").resolve_for_labels(labels)
        for row in rows:
            assert row[column] == spelled(getattr(recipe, bare(row[0])))


def test_the_values_are_those_of_the_recipes() -> None:
    head = ("setting", *(f"`{name}`" for name in NAMED))
    rows = table(section(PAGE, "## The values in each recipe"), *head)
    recipes = [irli.recipe(name) for name in NAMED]
    assert [bare(row[0]) for row in rows] == FIELDS
    for row in rows:
        shown = [bare(cell) for cell in row[1:]]
        assert shown == [spelled(getattr(recipe, bare(row[0]))) for recipe in recipes], row[0]


def spelled(value: object) -> str:
    """Return a value as the page shows it.

    >>> spelled("kmeans"), spelled(65536), spelled(0.002), spelled(None)
    ('kmeans', '65536', '0.002', 'None')
    """
    return str(value)
