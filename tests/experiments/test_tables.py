"""Tables say what the rows say: means and spreads over seeds, the paper's numbers, and gaps where there are none."""

import json
from pathlib import Path

import pytest
from absl import flags

from experiments import common, tables
from experiments.configs import pde as presets

ROOT = Path(__file__).parents[2]


def _row(dataset="heat", model="ctfno", seed=0, preset="default", experiment="pde", num_params=1234567, **metrics):
    scores = {"rmse": 5.2e-4, "nrmse": 2e-3, **metrics}
    return {"experiment": experiment, "dataset": dataset, "model": model, "preset": preset, "seed": seed,
            "num_params": num_params, "train_seconds": 90.0 + 60 * seed, "metrics": scores}  # fmt: skip


@pytest.fixture
def results(tmp_path):
    """Writes rows where finished cells leave them."""

    def write(*rows):
        for row in rows:
            name = "{dataset}-{model}-{preset}-seed{seed}.json".format(**row)
            path = tmp_path / row["experiment"] / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(row))
        return tmp_path

    return write


@pytest.fixture
def printed(monkeypatch, capsys):
    """What the program prints with these flags."""

    def run(**given):
        values = flags.FlagValues()
        for name, value in {"table": "pde", "preset": "default", "format": "text", **given}.items():
            flags.DEFINE_string(name, str(value), "", flag_values=values)
        values.mark_as_parsed()
        monkeypatch.setattr(tables, "FLAGS", values)
        tables.main()
        return capsys.readouterr().out

    return run


def _cells(text, dataset, model):
    """The cells of one line of a printed text table."""
    block = next(block for block in text.split("\n\n") if block.startswith(f"{dataset}:"))
    lines = [line.split("  ") for line in block.splitlines()[1:]]
    found = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    line = next(line for line in found if line[0] == model)
    return dict(zip(found[0], line, strict=True))


def test_a_cell_is_the_mean_over_seeds_with_half_their_range(results, printed):
    rows = [_row(seed=s, rmse=rmse, rmse_between_times=2 * rmse) for s, rmse in enumerate((1e-3, 2e-3, 6e-3))]
    found = _cells(printed(results_dir=results(*rows)), "heat", "ctfno")
    assert found["RMSE"] == "0.3000 ± 0.2500"
    assert found["between times"] == "0.6000 ± 0.5000"
    assert found["nRMSE"] == "0.2000 ± 0.0000"
    assert (found["seeds"], found["minutes"], found["parameters"]) == ("3", "2.5", "1,234,567")


def test_one_seed_has_no_spread_and_is_compared_with_the_paper(results, printed):
    found = _cells(printed(results_dir=results(_row())), "heat", "ctfno")
    assert (found["RMSE"], found["paper"], found["ratio"], found["seeds"]) == ("0.05200", "0.026", "2.00", "1")


def test_the_cores_that_the_minutes_are_of_are_named_where_they_are_known(results, printed):
    rows = [_row(seed=0), {**_row(seed=1), "cpu_cores": 1}, {**_row(seed=2), "cpu_cores": 2}, _row(model="fno_rnn")]
    text = printed(results_dir=results(*rows))
    assert _cells(text, "heat", "ctfno")["cores"] == "1/2"
    assert _cells(text, "heat", "fno_rnn")["cores"] == "-"


def test_navier_stokes_is_in_deviations_and_the_others_are_in_their_own_units(results, printed):
    scores = {"rmse": 7.0, "rmse_in_deviations": 2.947e-2, "rmse_between_times": 8.0,
              "rmse_in_deviations_between_times": 0.05}  # fmt: skip
    text = printed(results_dir=results(_row("navier_stokes", **scores)))
    found = _cells(text, "navier_stokes", "ctfno")
    assert (found["RMSE"], found["ratio"], found["between times"]) == ("2.947", "1.00", "5.000")
    assert "navier_stokes: test errors x 1e-2, RMSE in standard deviations" in text
    assert "heat: test errors x 1e-2, RMSE in physical units" in text


def test_what_is_not_known_stays_empty(results, printed):
    folder = results(_row(), _row(model="deeponet"))
    text = printed(results_dir=folder)
    missing = _cells(text, "heat", "fno_2d")
    assert missing.pop("model") == "fno_2d"
    assert missing.pop("seeds") == "0"
    assert set(missing.values()) == {"-"}
    unpublished = _cells(text, "heat", "deeponet")
    assert (unpublished["paper"], unpublished["ratio"], unpublished["between times"]) == ("-", "-", "-")
    assert unpublished["RMSE"] == "0.05200"
    markdown = printed(results_dir=folder, format="markdown")
    assert "| fno_2d |  |  |  |  |  |  |  |  | 0 |" in markdown
    assert "-  |" not in markdown


def test_every_equation_and_every_model_has_its_line(results, printed):
    overview, *blocks = printed(results_dir=results(_row())).split("\n\n")
    lines = overview.splitlines()
    assert lines[1].split() == ["model", *presets.PROBLEMS, "parameters"]
    assert [line.split()[0] for line in lines[2:]] == [*presets.SURROGATES, presets.AT_ONCE, "ctfno,"]
    assert lines[-1].split()[2:4] == ["0.026", "1.952"]
    assert [block.split(":")[0] for block in blocks] == list(presets.PROBLEMS)
    for block in blocks:
        at_once = [presets.AT_ONCE] if block.startswith(("burgers", "navier_stokes")) else []
        assert [line.split()[0] for line in block.splitlines()[2:]] == [*presets.SURROGATES, *at_once]


def test_rows_of_other_presets_are_left_out(results, printed):
    folder = results(_row(preset="quick", rmse=9e-3), _row(rmse=1e-3))
    assert _cells(printed(results_dir=folder), "heat", "ctfno")["RMSE"] == "0.1000"
    assert _cells(printed(results_dir=folder, preset="quick"), "heat", "ctfno")["RMSE"] == "0.9000"


@pytest.mark.parametrize("table", ["pde", "ablation", "timing"])
def test_all_lines_of_a_markdown_table_have_as_many_columns(results, printed, table):
    folder = results(_row(), _row(seed=1, rmse=1e-3))
    (folder / "timing").mkdir()
    (folder / "timing" / "heat.json").write_text(json.dumps(TIMING))
    text = printed(results_dir=folder, format="markdown", table=table)
    # A line of text, an empty line, a table: so that Markdown sees the table.
    blocks = [block.splitlines() for block in text.strip().split("\n\n")]
    assert len(blocks) % 2 == 0
    for head, lines in zip(blocks[::2], blocks[1::2], strict=True):
        assert len(head) == 1
        assert not head[0].startswith("|")
        assert len(lines) > 3
        assert len({line.count("|") for line in lines}) == 1


def test_text_columns_are_aligned(results, printed):
    block = printed(results_dir=results(_row(), _row(seed=1, rmse=1e-3))).split("\n\n")[0]
    assert len({len(line) for line in block.splitlines()[1:]}) == 1


def test_ablations_stand_beside_ctfno(results, printed):
    folder = results(_row(), _row(model="ablation_input", experiment="ablation", rmse=3e-3))
    text = printed(results_dir=folder, table="ablation")
    assert [block.split(":")[0] for block in text.split("\n\n")] == ["heat", "burgers"]
    assert _cells(text, "heat", "ctfno")["RMSE"] == "0.05200"
    assert _cells(text, "heat", "ablation_input")["RMSE"] == "0.3000"
    assert _cells(text, "heat", "ablation_lifted")["RMSE"] == "-"


TIMING = {
    "size": [400, 50, 1024],
    "batch_size": 20,
    "models": {
        "ctfno": {"training": 10.0, "inference": 2.0, "num_params": 2502145},
        "fno_rnn": {"training": 65.0, "inference": 9.0, "num_params": 2122433},
    },
}


def test_times_are_compared_with_ctfno_and_with_the_papers_ratios(tmp_path):
    path = tmp_path / "heat.json"
    path.write_text(json.dumps(TIMING))
    head, _, ctfno, rnn = tables.timing_table(path, "text").splitlines()
    assert head == "heat: one epoch, 400 trajectories x 50 times x 1024 points, batches of 20"
    assert ctfno.split() == ["ctfno", "10.0", "1.00", "-", "2.0", "1.00", "-", "2,502,145"]
    assert rnn.split() == ["fno_rnn", "65.0", "6.50", "8", "9.0", "4.50", "14.8", "2,122,433"]


def test_times_that_were_not_taken_are_an_error_that_says_how(results, printed):
    with pytest.raises(ValueError, match=r"there is no .*heat\.json; make it with python -m experiments\.timing"):
        printed(results_dir=results(_row()), table="timing")


def test_a_row_that_is_not_json_is_named(results, printed):
    folder = results(_row())
    (folder / "pde" / "broken.json").write_text('{"a": ')
    with pytest.raises(ValueError, match=r"broken\.json is not valid JSON: .*; remove it and run its cell again"):
        printed(results_dir=folder)


def test_a_folder_that_is_not_there_is_named(tmp_path, printed):
    with pytest.raises(ValueError, match=r"there is no folder .*nowhere; --results_dir names the folder with the rows"):
        printed(results_dir=tmp_path / "nowhere")


@pytest.mark.parametrize(("values", "text"), [([], ""), ([0.0], "0.0000"), ([123.456], "123.5"), ([1e-3], "0.001000"),
                                              ([12345.6], "12346"), ([2.0, 4.0], "3.000 ± 1.000")])  # fmt: skip
def test_numbers_have_four_digits(values, text):
    assert tables.spread(values) == text


@pytest.mark.parametrize("form", tables.FORMATS)
@pytest.mark.parametrize("preset", common.PRESETS)
def test_the_rows_of_the_repository_can_be_printed(printed, preset, form):
    for table in ("pde", "ablation"):
        assert "heat: test errors x 1e-2" in printed(
            results_dir=ROOT / "results", table=table, preset=preset, format=form
        )


def test_the_table_of_dynamics_tells_components_evaluations_and_spikes(results, printed):
    synthetic = {"experiment": "synthetic", "num_params": 17_891}
    directory = results(
        _row("stiff", "ctfno", 0, **synthetic, rmse=0.15, rmse_x=0.2, spikes=3),
        _row("stiff", "ctfno", 1, **synthetic, rmse=0.17, rmse_x=0.22, spikes=3),
        _row("spiral", "node", 0, **synthetic, rmse=0.0326, function_evaluations=71.6),
        _row("heat", "neural_flow", 0, rmse=0.02),
        _row("burgers", "ctfno", 0, rmse=0.5),
    )
    text = printed(table="synthetic", results_dir=directory)
    stiff = _cells(text, "stiff", "ctfno")
    assert (stiff["RMSE"], stiff["paper"], stiff["ratio"]) == ("16.00 ± 1.00", "16.53", "0.97")
    assert (stiff["RMSE of x"], stiff["evaluations"], stiff["seeds"]) == ("21.00 ± 1.00", "-", "2")
    assert "stiff: test errors x 1e-2; values in the middle of a jump, in the test set: 3" in text
    spiral = _cells(text, "spiral", "node")
    assert (spiral["ratio"], spiral["evaluations"], spiral["RMSE of x"]) == ("1.00", "72", "-")
    assert _cells(text, "heat", "neural_flow")["RMSE"] == "2.000"
    overview = text.split("\n\n")[0].splitlines()
    assert overview[-1].split() == ["ctfno,", "paper", "11.69", "3.9", "16.53", "1.87", "0.239"]
    assert "burgers" not in text


def test_seconds_of_dynamics_are_compared_with_those_of_ctfno(tmp_path):
    models = {
        "ctfno": {"training": 0.02, "inference": 0.004, "num_params": 17_891},
        "node": {"training": 0.05, "inference": 0.001, "num_params": 17_282, "function_evaluations": 72.0},
    }
    (tmp_path / "dynamics.json").write_text(json.dumps({"batch_size": 120, "models": models}))
    lines = tables.dynamics_timing_table(tmp_path / "dynamics.json", "text").splitlines()
    assert lines[-1].split() == ["node", "50.0", "2.50", "1.0", "0.25", "72", "17,282"]
    with pytest.raises(ValueError, match=r"make it with python -m experiments\.timing"):
        tables.dynamics_timing_table(tmp_path / "none.json", "text")
