"""Tables show the rows beside all numbers of the paper, and the tables in the documents agree with the rows."""

import dataclasses
import json
from pathlib import Path

import pytest
from helpers.result_rows import write_row

from experiments import catalog, linear_forecast, paper_results, table_lines, tables
from experiments.cells import Cell

ROOT = Path(__file__).parents[2]


def parse(block):
    """Lines of a text table without its title: model -> list of (column, text)."""
    _, *lines = block.splitlines()
    head, *body = [[text.strip() for text in line.split("  ") if text.strip()] for line in lines]
    assert all(len(line) == len(head) for line in body)
    return {line[0]: list(zip(head[1:], line[1:], strict=True)) for line in body}


def details(folder, table, dataset, model):
    blocks = tables.render(f"{table}-details", folder).split("\n\n")
    return dict(parse(next(block for block in blocks if block.startswith(f"{dataset}:")))[model])


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_a_cell_is_the_mean_over_seeds_with_half_their_range(tmp_path):
    for seed, rmse in enumerate((1e-3, 2e-3, 6e-3)):
        write_row(tmp_path, Cell("pde", "heat", "ctfno", seed=seed), rmse=rmse, rmse_between_times=2 * rmse)
    found = details(tmp_path, "pde", "heat", "ctfno")
    assert (found["ours"], found["paper"], found["ratio"]) == ("0.3000 ± 0.2500", "0.026", "11.54")
    assert (found["relative L2"], found["between times"]) == ("0.2000 ± 0.0000", "0.6000 ± 0.5000")
    assert (found["parameters"], found["paper's"], found["CPU minutes"], found["seeds"]) == (
        "1,234,567", "2.38M", "2.5", "3",
    )  # fmt: skip
    overview = parse(tables.render("pde", tmp_path))["ctfno"]
    assert overview[:4] == [("heat", "0.3000 ± 0.2500"), ("paper", "0.026"), ("burgers", "-"), ("paper", "1.952")]


@pytest.mark.parametrize(
    ("values", "text"),
    [([], "-"), ([0.0], "0.0000"), ([1.23456], "123.5"), ([1e-5], "0.001000"), ([123.456], "12346"),
     ([0.02, 0.04], "3.000 ± 1.000")],
)  # fmt: skip
def test_errors_have_four_digits_in_units_of_a_hundredth(values, text):
    assert table_lines.spread(values) == text


@pytest.mark.parametrize(
    ("ours", "other", "text"), [(2.0, 4.0, "0.50"), (0.01, 4.0, "0.003"), (None, 4.0, "-"), (1.0, None, "-")]
)
def test_a_ratio_needs_both_numbers(ours, other, text):
    assert table_lines.ratio(ours, other) == text


def test_navier_stokes_is_compared_by_its_relative_error(tmp_path):
    scores = {"rmse": 7.0, "nrmse": 0.05894, "rmse_in_deviations": 0.3, "rmse_in_deviations_density": 0.1,
              "rmse_in_deviations_between_times": 0.4}  # fmt: skip
    write_row(tmp_path, Cell("pde", "navier_stokes", "ctfno"), **scores)
    found = details(tmp_path, "pde", "navier_stokes", "ctfno")
    assert (found["ours"], found["paper"], found["ratio"]) == ("5.894", "2.947", "2.00")
    assert (found["z-scored RMSE"], found["of density"], found["z-scored between times"]) == ("30.00", "10.00", "40.00")
    assert dict(parse(tables.render("pde", tmp_path))["ctfno"])["navier_stokes"] == "5.894"
    assert "navier_stokes: relative L2 error" in tables.render("pde", tmp_path)


def test_series_have_errors_of_components_evaluations_and_facts_about_their_data(tmp_path):
    write_row(tmp_path, Cell("synthetic", "stiff", "node"), rmse=0.4423, rmse_x=0.2, rmse_velocity=0.6,
              function_evaluations=71.6, data={"spikes_in_test": 3.0})  # fmt: skip
    write_row(tmp_path, Cell("synthetic", "square", "ctfno"), data={"least_rmse": 0.1169})
    found = details(tmp_path, "synthetic", "stiff", "node")
    assert (found["ratio"], found["RMSE of x"], found["RMSE of velocity"]) == ("1.00", "20.00", "60.00")
    assert found["vector field evaluations"] == "71.6"
    text = tables.render("synthetic-details", tmp_path)
    assert "3 test values lie within a jump" in text
    assert "no forecast can have less than 11.69" in text


def test_rows_of_other_presets_and_overrides_are_other_cells(tmp_path):
    write_row(tmp_path, Cell("pde", "heat", "ctfno"), rmse=1e-3)
    write_row(tmp_path, Cell("pde", "heat", "ctfno", "quick"), rmse=9e-3)
    write_row(tmp_path, Cell("pde", "heat", "ctfno", overrides={"width": 8}), rmse=9e-3)
    found = details(tmp_path, "pde", "heat", "ctfno")
    assert (found["ours"], found["seeds"]) == ("0.1000", "1")


# --- all cells of the paper -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["pde", "ablation", "synthetic", "de_on_fields"])
def test_every_number_of_the_paper_is_shown_without_any_row(tmp_path, table):
    found = parse(tables.render(table, tmp_path))
    blocks = tables.render(f"{table}-details", tmp_path).split("\n\n")
    single = {block.split(":")[0]: parse(block) for block in blocks}
    for model, values in paper_results.TABLES[table]["rows"].items():
        columns = found[model]
        for dataset, value in zip(paper_results.TABLES[table]["columns"], values, strict=True):
            at = [name for name, _ in columns].index(dataset)
            assert columns[at] == (dataset, "-")
            assert columns[at + 1] == ("paper", f"{value:.5g}")
            assert dict(single[dataset][model])["paper"] == f"{value:.5g}"


def test_every_number_of_the_json_is_reachable_or_a_parameter_count():
    """Tables of results by number(), counts by num_params(); the tables of images are not reproduced yet."""
    for name, table in paper_results.TABLES.items():
        if "rows" not in table:
            assert name in ("image_num_params", "synthetic_num_params")
            continue
        for model, values in table["rows"].items():
            for column, value in zip(table["columns"], values, strict=True):
                found = paper_results.number(name, model, column)
                assert (found is None) == (value is None)
                if found is not None:
                    unit = table["unit"]
                    scale = 1e-3 if unit == "1e-3" else 1.0 if unit.startswith("seconds") else 1e-2
                    assert found == pytest.approx(value * scale)
    assert paper_results.number("pde", "ctfno", "nowhere") is None
    assert paper_results.number("pde", "node", "heat") is None


@pytest.mark.parametrize(
    ("dataset", "model", "count"),
    [("heat", "ctfno", round(2.38 * 2**20)), ("reaction", "ctfno", round(1.82 * 2**20)), ("spiral", "node", 17025),
     ("heat", "fno_2d", 12 * 2**20), ("reaction", "fno_2d", 7 * 2**20), ("heat", "deeponet", 1580000),
     ("burgers", "fno_rnn", round(2.02 * 2**20)), ("plane_vibration", "ctfno", 6000), ("plane_vibration", "node", None),
     ("heat", "ctfno_semigroup", None), ("stiff", "deeponet", None)],
)  # fmt: skip
def test_parameter_counts_of_the_paper(dataset, model, count):
    assert paper_results.num_params(dataset, model) == count


def test_the_result_of_a_cell_names_our_metric():
    heat = paper_results.paper_result("pde", "heat", "ctfno")
    assert heat == {"rmse": pytest.approx(2.6e-4), "num_params": paper_results.num_params("heat", "ctfno")}
    # Heat of the models of dynamics stands in another table.
    assert paper_results.paper_result("pde", "heat", "neural_flow")["rmse"] == pytest.approx(3.038e-2)
    assert set(paper_results.paper_result("pde", "navier_stokes", "fno_2d")) == {"nrmse", "num_params"}
    assert paper_results.paper_result("vibration", "plane_vibration", "hbnode") == {"mse": pytest.approx(2.5e-2)}
    assert paper_results.paper_result("pde", "heat", "ctfno_semigroup") is None


def test_models_that_the_paper_lacks_have_lines_of_their_own(tmp_path):
    write_row(tmp_path, Cell("pde", "diffusion_sorption", "ctfno_odd"), rmse=3e-4)
    found = parse(tables.render("pde", tmp_path))
    assert list(found) == [*catalog.SURROGATES, *catalog.PEERS]
    assert found["ctfno_odd"][4:6] == [("diffusion_sorption", "0.03000"), ("paper", "-")]
    assert {text for _, text in found["ctfno_semigroup"]} == {"-"}


def test_the_title_names_the_symmetries_that_models_were_trained_with(tmp_path):
    write_row(tmp_path, Cell("pde", "heat", "ctfno"), settings={"reflections": True, "translations": False})
    title = tables.render("pde-details", tmp_path).splitlines()[0]
    assert title.endswith("half the range; trained with reflections")
    write_row(tmp_path, Cell("pde", "heat", "deeponet"), settings={"reflections": True, "translations": True})
    title = tables.render("pde-details", tmp_path).splitlines()[0]
    assert title.endswith("; trained with reflections, translations (deeponet)")


# --- tables of one data set -------------------------------------------------------------------------------------------


def test_the_paper_stands_beside_its_own_protocol_on_plane_vibration(tmp_path):
    write_row(tmp_path, Cell("vibration", "plane_vibration", "ctfno", "paper"), mse=0.0392, train_mse=0.01,
              certified_lipschitz=51.23, measured_gain=2.0)  # fmt: skip
    write_row(tmp_path, Cell("vibration", "plane_vibration", "ctfno"), mse=0.02)
    write_row(tmp_path, Cell("vibration", "plane_vibration", "ctfno", overrides={"stability_bound": None}), mse=0.05)
    write_row(tmp_path, Cell("vibration", "plane_vibration", "linear"), mse=0.04)
    found = {model: dict(line) for model, line in parse(tables.render("vibration", tmp_path)).items()}
    assert set(found) == {*catalog.VIBRATION, "ctfno, stability_bound=none", *linear_forecast.MODELS}
    assert list(found["ctfno"].values()) == ["3.920", "1.96", "2.00", "2.000"]
    assert list(found["ctfno, stability_bound=none"].values()) == ["-", "-", "-", "5.000"]
    assert list(found["linear"].values()) == ["-", "-", "-", "4.000"]
    assert found["hbnode"]["paper"] == "2.5"
    published, ours = tables.render("vibration-details", tmp_path).split("\n\n")
    ctfno = dict(parse(published)["ctfno"])
    assert (ctfno["ours"], ctfno["paper"], ctfno["ratio"], ctfno["training MSE"]) == ("3.920", "1.96", "2.00", "1.000")
    assert (ctfno["certified growth"], ctfno["measured growth"], ctfno["paper's"]) == ("51.2", "2", "6K")
    assert set(linear_forecast.MODELS) <= set(parse(ours)) - set(parse(published))
    assert {dict(line)["paper"] for line in parse(ours).values()} == {"-"}


def test_errors_over_the_bound_have_their_range_and_those_over_the_data_are_medians(tmp_path):
    for seed, mse in enumerate((0.01, 0.02, 0.09)):
        overrides = {"stability_bound": 1.2, "stability_rule": "rows"}
        cell = Cell("vibration", "plane_vibration", "ctfno", "paper", seed, overrides)
        write_row(tmp_path, cell, mse=mse, train_mse=mse / 2, certified_lipschitz=10 * mse, measured_gain=mse)
        cell = dataclasses.replace(cell, overrides={"stability_bound": None})
        write_row(tmp_path, cell, mse=0.01 * (seed + 1), train_mse=0.01)
        cell = Cell("pde", "heat", "ctfno", seed=seed, overrides=catalog.efficiency_overrides()[0])
        write_row(tmp_path, cell, rmse=mse)
    lines = [line.split() for line in tables.render("effect_of_bound", tmp_path).splitlines()]
    # Differences 0, 0 and 6; Student's t with two degrees of freedom has 4.303 at 97.5%.
    errors = ["4.000", "±", "4.000", "1.96", "+2.00", "±", f"{4.3027 * 2:.2f}", "2.000", "±", "2.000"]
    assert ["1.2", "rows", *errors, "0.2", "0.02", "3"] in lines
    assert len(lines) == 2 + len(catalog.bound_overrides())
    lines = [line.split() for line in tables.render("data_efficiency", tmp_path).splitlines()]
    assert lines[2] == ["20", "2.000", "3", "-", "0", "-", "0"]
    assert [line[0] for line in lines[2:]] == [str(4 * share) for share in catalog.SHARES]


def test_every_size_of_the_network_has_its_error(tmp_path):
    cells = catalog.cells("universality", num_seeds=1)
    assert len({(cell.overrides["width"], *cell.overrides["modes"]) for cell in cells}) == len(cells) == 7
    for i, cell in enumerate(cells):
        write_row(tmp_path, cell, rmse=0.01 * (i + 1))
    lines = [line.split() for line in tables.render("universality", tmp_path).splitlines()[2:]]
    assert [line[3] for line in lines] == [f"{i + 1}.000" for i in range(7)]
    assert lines[0] == ["4", "32", "1,234,567", "1.000", "1"]


def test_noise_stands_beside_the_error_without_it(tmp_path):
    for seed, factor in enumerate((1, 2)):
        for cell in catalog.cells("noise", num_seeds=1):
            scores = {"rmse": 0.01 * factor, "rmse_noise_0.1": 0.02 * factor, "certified_lipschitz": 5.0 * factor}
            write_row(tmp_path, dataclasses.replace(cell, seed=seed), **scores)
    lines = [line.split("  ") for line in tables.render("noise", tmp_path).splitlines()]
    found = [[text.strip() for text in line if text.strip()] for line in lines[2:]]
    assert [line[:2] for line in found] == [[name, b] for name in ("sine", "sawtooth") for b in ("no bound", "M = 1")]
    assert all(line[2:] == ["1.500 ± 0.500", "3.000 ± 1.000", "-", "7.5", "-", "2"] for line in found)


def test_latent_models_have_a_column_for_each_task_and_details_of_their_own(tmp_path):
    overrides = {"task": "interpolation", "observed": 0.5}
    scores = {"mse": 0.00115, "mse_pooled": 0.002, "mse_of_mean": 0.001, "certified_lipschitz": 17.0}
    half = [c for c in catalog.cells("mujoco", 1) if overrides.items() <= dict(c.overrides).items()]
    cell = next(c for c in half if c.model == "ctfno")
    assert cell.overrides["steps"] > 0  # fewer than where less is observed
    write_row(tmp_path, cell, **scores, data={"train": 7200.0}, settings={"batch_size": 50}, steps=14400)
    # What needs no training stands in the same column, without a number of steps.
    write_row(tmp_path, Cell("timeseries", "mujoco", "last_value", overrides=overrides), mse=0.009)
    lines = parse(tables.render("mujoco", tmp_path).split("\n\n")[0])
    assert lines["last_value"][6:8] == [("50%", "9.000"), ("paper", "-")]
    assert lines["ctfno"][6:8] == [("50%", "1.150"), ("paper", "1.15")]
    blocks = {block.split(":")[0]: parse(block) for block in tables.render("mujoco-details", tmp_path).split("\n\n")}
    assert len(blocks) == 8
    found = dict(blocks["mujoco, interpolation 50"]["ctfno"])
    assert [found[name] for name in ("ours", "ratio", "pooled", "of the mean forecast", "epochs", "paper's")] == [
        "1.150", "1.00", "2.000", "1.000", "100", "150K",
    ]  # fmt: skip
    assert {text for _, text in blocks["mujoco, interpolation 10"]["ctfno"]} == {"-", "1.53", "150K", "0"}


def test_new_persons_are_another_column_which_the_paper_does_not_have(tmp_path):
    write_row(tmp_path, Cell("timeseries", "activity", "ctfno"), accuracy=0.86)
    write_row(tmp_path, Cell("timeseries", "activity", "ctfno", overrides=catalog.NEW_PERSON), accuracy=0.7)
    ours, elsewhere = tables.render("activity", tmp_path).split("\n\n")
    assert [text for _, text in parse(ours)["ctfno"]] == ["86.00", "85", "70.00", "-"]
    assert dict(parse(elsewhere)["attention encoder"]) == {"accuracy": "91"}
    cell = Cell("timeseries", "activity", "ctfno", overrides=catalog.NEW_PERSON)
    assert paper_results.paper_result("timeseries", "activity", "ctfno", cell.config()) is None


def test_classifiers_have_a_table_of_clean_images_and_one_of_attacked_images(tmp_path):
    scores = {"accuracy": 0.985, "gaussian_50": 0.97, "gaussian_100": 0.88, "certified_accuracy": 0.4}
    attacked = {"fgsm_30": 0.7, "pgd_30": 0.6, "pgd_quarter_30": 0.5, "apgd_30": 0.3, "fgsm_50": 0.2, "pgd_50": 0.1}
    write_row(tmp_path, Cell("images", "mnist", "fno_stabilized"), **scores, **attacked)
    clean, under_attack = map(parse, tables.render("mnist", tmp_path).split("\n\n"))
    assert clean["fno_stabilized"][:7] == [
        ("clean", "98.50"), ("paper", "98.8"), ("noise 50", "97.00"), ("paper", "97.8"), ("noise 100", "88.00"),
        ("paper", "88.2"), ("certified", "40.00"),
    ]  # fmt: skip
    assert clean["cnn"][4:6] == [("noise 100", "-"), ("paper", "10.4")]
    found = under_attack["fno_stabilized"]
    assert [name for name, _ in found if name != "paper"] == [
        "FGSM 30", "FGSM 50", "PGD 30", "PGD 50", "PGD, quarter 30", "PGD, quarter 50", "APGD 30", "APGD 50",
    ]  # fmt: skip
    assert found[:2] == [("FGSM 30", "70.00"), ("paper", "36.2")]
    assert dict(found)["APGD 30"] == "30.00"
    assert dict(found)["APGD 50"] == "-"


HEAT = {
    "devices": ["cpu:cpu"],
    "models": {"ctfno": {"training": 10.0, "inference": 2.0}, "fno_rnn": {"training": 65.0, "inference": 9.0}},
}
OPERATOR = {
    "devices": ["cpu:cpu"],
    "sizes": [
        {
            "size": [2, 3, 4],
            "seconds": {
                name: {"forward": 0.01 * factor, "forward_backward": 0.03 * factor}
                for name, factor in (("ours", 1), ("rfft", 2), ("obvious", 5))
            },
        }
    ],
}


def test_times_stand_beside_the_papers_seconds_and_ratios(tmp_path):
    (tmp_path / "timing").mkdir()
    (tmp_path / "timing" / "heat.json").write_text(json.dumps(HEAT))
    (tmp_path / "timing" / "operator.json").write_text(json.dumps(OPERATOR))
    heat, dynamics, _, _, _, operator = tables.render("timing", tmp_path).split("\n\n")
    assert "ours on CPU, the paper's on an RTX 3090" in heat
    assert [text for _, text in parse(heat)["fno_rnn"]] == [
        "65.00", "6.34", "6.50", "8.03", "9.00", "0.74", "4.50", "14.80",
    ]  # fmt: skip
    assert [text for _, text in parse(heat)["fno_2d"]] == ["-", "2.06", "-", "2.61", "-", "0.3", "-", "6.00"]
    assert list(parse(dynamics)) == list(catalog.DE_MODELS)
    assert "not measured yet" in dynamics
    assert operator.splitlines()[-1].split()[-4:] == ["50.0", "5.00", "150.0", "5.00"]


def test_a_time_that_cannot_be_read_is_named_with_its_remedy(tmp_path):
    (tmp_path / "timing").mkdir()
    (tmp_path / "timing" / "heat.json").write_text('{"models": {}}')
    with pytest.raises(ValueError, match=r"heat\.json is not what experiments\.timing writes .* --measure=heat"):
        tables.render("timing", tmp_path)


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["[]", '{"a": ', "null"])
def test_a_file_that_is_no_row_is_named(tmp_path, text):
    (tmp_path / "pde").mkdir()
    (tmp_path / "pde" / "broken.json").write_text(text)
    with pytest.raises(ValueError, match=r"broken\.json .*; remove it and run its cell again"):
        tables.render("pde", tmp_path)


def test_a_row_without_its_keys_or_its_error_is_named(tmp_path):
    cell = Cell("synthetic", "spiral", "node")
    write_row(tmp_path, cell, drop=("cpu_seconds",))
    with pytest.raises(ValueError, match=r"spiral-node-default-seed0\.json is no result row \(it lacks cpu_seconds\)"):
        tables.render("synthetic", tmp_path)
    cell = Cell("vibration", "plane_vibration", "node")
    write_row(tmp_path, cell)
    with pytest.raises(ValueError, match="--model=node --seed=0` has no mse; remove it and run its cell again"):
        tables.render("vibration", tmp_path)


@pytest.mark.parametrize(("table", "form", "message"), [("nope", "text", "unknown table"), ("pde", "html", "format")])
def test_unknown_names_are_refused_with_the_known_ones(tmp_path, table, form, message):
    with pytest.raises(ValueError, match=f"{message}.*known are"):
        tables.render(table, tmp_path, form)


# --- documents --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", tables.NAMES)
def test_markdown_tables_are_separate_blocks_with_equal_columns(tmp_path, table):
    blocks = tables.render(table, tmp_path, "markdown").split("\n\n")
    for title, lines in zip(blocks[::2], blocks[1::2], strict=True):
        assert "\n" not in title
        assert not title.startswith("|")
        assert len({line.count("|") for line in lines.splitlines()}) == 1
        assert lines.splitlines()[1].replace("|", "").replace("-", "").replace(":", "") == ""


def test_update_writes_the_blocks_and_nothing_else(tmp_path):
    results = tmp_path / "results"
    write_row(results, Cell("pde", "heat", "ctfno"), rmse=1.5e-3)
    before = "# Title\r\n\n<!-- table: pde -->\nold\n<!-- end table -->\ntail without newline"
    (tmp_path / "README.md").write_bytes(before.encode())
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("<!-- table: timing -->\n<!-- end table -->\n`<!-- table: no -->`\n")
    (tmp_path / "docs" / "untouched.md").write_text("nothing here\n")
    assert tables.stale(tmp_path) == ["README.md: pde", "docs/a.md: timing"]
    assert tables.update(tmp_path, results) == ["README.md: pde", "docs/a.md: timing"]
    text = (tmp_path / "README.md").read_bytes().decode()
    inside = tables.render("pde", results, "markdown")
    assert text == before.replace("\nold\n", f"\n\n{inside}\n\n")
    assert "| 0.1500 | 0.026 |" in text
    assert tables.stale(tmp_path) == []
    assert tables.update(tmp_path, results) == []
    # A changed row makes its table stale, and only that.
    write_row(results, Cell("pde", "heat", "ctfno"), rmse=1.6e-3)
    assert tables.stale(tmp_path) == ["README.md: pde"]


@pytest.mark.parametrize(
    ("text", "message"),
    [("a\n<!-- table: nope -->\n<!-- end table -->\n", "BUILD.md, line 2: unknown table 'nope'; known are pde"),
     ("<!-- table: pde -->\n", "BUILD.md, line 1: table pde has no end; add a line <!-- end table -->"),
     ("<!-- table: pde -->\n<!-- table: pde -->\n<!-- end table -->\n", "line 1: table pde has no end")],
)  # fmt: skip
def test_wrong_markers_are_refused_before_anything_is_written(tmp_path, text, message):
    good = "<!-- table: pde -->\n<!-- end table -->\n"
    (tmp_path / "README.md").write_text(good)
    (tmp_path / "BUILD.md").write_text(text)
    with pytest.raises(ValueError, match=message):
        tables.update(tmp_path, tmp_path / "results")
    assert (tmp_path / "README.md").read_text() == good


def test_the_tables_of_this_repository_agree_with_its_rows():
    assert tables.stale(ROOT) == [], "run python -m experiments.tables --update"
