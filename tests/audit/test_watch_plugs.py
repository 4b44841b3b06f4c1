"""Trackers and trainers that a watched run plugs into: the real libraries where they are installed, in real runs."""

import math

import pytest
from test_audit_watch import example_row

from analysis import AttentionAlert, read_history, watch
from analysis.audit.live.plugs.trackers import COLUMNS, mlflow_rows, tensorboard_rows, wandb_rows


class Recorder:
    """Stands in for a tracker: keeps what it is told."""

    def __init__(self):
        self.told = []

    def __getattr__(self, name):
        return lambda *args, **kwargs: self.told.append((name, args, kwargs))


def test_what_trackers_are_told():
    row = example_row(module="h.0:attn", entropy_ratio=math.nan)
    columns = ("largest_score", "entropy_ratio")
    board, run, flow = Recorder(), Recorder(), Recorder()
    tensorboard_rows(board, columns=columns)(row)
    assert board.told == [("add_scalar", ("attention/h.0:attn/1/largest_score", 130.0, 3), {})]
    wandb_rows(run, columns=columns)(row)
    assert [name for name, *_ in run.told] == ["define_metric", "define_metric", "log"]
    assert run.told[-1][1:] == (
        ({"attention/step": 3, "attention/h.0:attn/1/largest_score": 130.0},),
        {"commit": False},
    )
    mlflow_rows(flow, columns="largest_score")(row)
    mlflow_rows(flow, columns="entropy_ratio")(row)  # nothing finite: nothing is told
    assert flow.told == [("log_metrics", ({"attention/h.0_attn/1/largest_score": 130.0},), {"step": 3})]


def test_calls_of_one_module_have_tags_of_their_own():
    board = Recorder()
    for call in (0, 1):
        tensorboard_rows(board, columns="largest_score")(example_row(module="a", call=call))
    assert [args[0] for _, args, _ in board.told] == [
        "attention/a/1/largest_score",
        "attention/a/call 1/1/largest_score",
    ]


@pytest.mark.parametrize("plug", [tensorboard_rows, wandb_rows, mlflow_rows])
@pytest.mark.parametrize("columns", [(), "module", "largest", ("largest_score", "step")])
def test_columns_that_cannot_be_are_refused(plug, columns):
    with pytest.raises(ValueError, match="columns must be floating columns of WatchRow: got"):
        plug(Recorder(), columns=columns)


def model_of(torch):
    class Classifier(torch.nn.Module):
        """A sequence's sign of the mean, by one attention layer of two heads."""

        def __init__(self):
            super().__init__()
            self.attn = torch.nn.MultiheadAttention(8, 2, batch_first=True)
            self.out = torch.nn.Linear(8, 1)

        def forward(self, x, labels=None):
            y = self.out(self.attn(x, x, x, need_weights=False)[0]).mean((1, 2))
            return {"loss": torch.nn.functional.binary_cross_entropy_with_logits(y, labels), "logits": y}

    torch.manual_seed(0)
    return Classifier()


def data_of(torch):
    x = torch.randn(16, 5, 8, generator=torch.Generator().manual_seed(0))
    return [{"x": each, "labels": (each.mean() > 0).float()} for each in x]


def trained(torch, on_row):
    """Train for three steps; return the rows."""
    model, kept = model_of(torch), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def hand_on(row):
        kept.append(row)
        on_row(row)

    with watch(model, on_row=hand_on) as watcher:
        for _ in range(3):
            batch = torch.utils.data.default_collate(data_of(torch))
            model(**batch)["loss"].backward()
            optimizer.step()
            optimizer.zero_grad()
    assert watcher.unseen == ()
    assert len(kept) == 6
    return kept


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the libraries' own
class TestRealLibraries:
    @pytest.fixture(autouse=True)
    def torch(self):
        return pytest.importorskip("torch")

    def test_tensorboard(self, torch, tmp_path):
        tensorboard = pytest.importorskip("torch.utils.tensorboard")
        accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
        with tensorboard.SummaryWriter(str(tmp_path)) as writer:
            rows = trained(torch, tensorboard_rows(writer))
        events = accumulator.EventAccumulator(str(tmp_path))
        events.Reload()
        assert len(events.Tags()["scalars"]) == 2 * len(COLUMNS)
        for head in (0, 1):
            read = [(e.step, e.value) for e in events.Scalars(f"attention/attn/{head}/entropy_ratio")]
            assert read == [(r.step, pytest.approx(r.entropy_ratio)) for r in rows if r.head == head]

    def test_wandb_offline(self, torch, tmp_path):
        wandb = pytest.importorskip("wandb")
        run = wandb.init(mode="offline", dir=str(tmp_path), project="x", settings={"silent": True})
        add = wandb_rows(run)

        def on_row(row):
            add(row)
            if row.head == 1:
                run.log({"loss": 1.0})  # the run's own log commits ours

        rows = trained(torch, on_row)
        assert run.step == 3
        assert run.summary["attention/step"] == 2
        assert run.summary["attention/attn/1/largest_score"] == rows[-1].largest_score
        run.finish()
        assert list(tmp_path.rglob("*.wandb"))

    def test_mlflow_file_store(self, torch, tmp_path, monkeypatch):
        monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        mlflow = pytest.importorskip("mlflow")
        store = (tmp_path / "runs").as_uri()
        mlflow.set_tracking_uri(store)
        with mlflow.start_run() as run:
            rows = trained(torch, mlflow_rows(mlflow))
        history = mlflow.MlflowClient(store).get_metric_history(run.info.run_id, "attention/attn/1/largest_score")
        read = [(metric.step, metric.value) for metric in history]
        assert read == [(row.step, row.largest_score) for row in rows if row.head == 1]

    def transformers_trainer(self, torch, folder, callbacks, **options):
        transformers = pytest.importorskip("transformers")
        pytest.importorskip("accelerate")
        arguments = transformers.TrainingArguments(
            output_dir=str(folder), max_steps=3, per_device_train_batch_size=4, report_to=[], save_strategy="no",
            use_cpu=True, disable_tqdm=True, seed=0, **options,
        )  # fmt: skip
        return transformers.Trainer(
            model=model_of(torch), args=arguments, train_dataset=data_of(torch), callbacks=callbacks
        )

    def test_transformers_trainer(self, torch, tmp_path):
        pytest.importorskip("transformers")
        from analysis.audit.live.plugs.transformers import WatchCallback

        callback = WatchCallback(history=tmp_path / "h.csv")
        watched = self.transformers_trainer(torch, tmp_path, [callback], gradient_accumulation_steps=2)
        plain = self.transformers_trainer(torch, tmp_path, [], gradient_accumulation_steps=2)
        watched.train()
        plain.train()
        for one, other in zip(watched.model.parameters(), plain.model.parameters(), strict=True):
            assert torch.equal(one, other)
        rows = read_history(tmp_path / "h.csv")
        assert [(row.step, row.head) for row in rows] == [(step, head) for step in range(6) for head in (0, 1)]
        assert all(row.query_gradient_norm > 0 for row in rows)
        assert callback.watcher.unseen == ()
        watched.train()  # a second run starts anew, and closes the file of the first
        assert len(read_history(tmp_path / "h.csv")) == 12

    def test_transformers_trainer_that_an_alert_stops(self, torch, tmp_path):
        pytest.importorskip("transformers")
        from analysis.audit.live.plugs.transformers import WatchCallback

        callback = WatchCallback(alert={"largest_score": 1e-6, "action": "raise"})
        with pytest.raises(AttentionAlert, match="attn, head 0, step 0"):
            self.transformers_trainer(torch, tmp_path, [callback]).train()
        callback.close()
        assert [row.step for row in callback.watcher.rows] == [0, 0]
        with watch(model_of(torch)):
            pass  # nothing is left behind that another watch would run into

    def lightning_trainer(self, torch, folder, callbacks):
        lightning = pytest.importorskip("lightning.pytorch")

        class Step(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.net = model_of(torch)

            def training_step(self, batch, index):
                return self.net(**batch)["loss"]

            def validation_step(self, batch, index):
                self.net(**batch)

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.1)

        trainer = lightning.Trainer(
            max_steps=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, callbacks=callbacks, default_root_dir=str(folder),
        )  # fmt: skip
        step, loader = Step(), torch.utils.data.DataLoader(data_of(torch), batch_size=4)
        return step, lambda: trainer.fit(step, loader, loader)

    def test_lightning(self, torch, tmp_path):
        pytest.importorskip("lightning.pytorch")
        from analysis.audit.live.plugs.lightning import WatchCallback

        callback = WatchCallback(history=tmp_path / "h.csv")
        watched, fit = self.lightning_trainer(torch, tmp_path, [callback])
        fit()
        plain, fit = self.lightning_trainer(torch, tmp_path, [])
        fit()
        for one, other in zip(watched.parameters(), plain.parameters(), strict=True):
            assert torch.equal(one, other)
        rows = read_history(tmp_path / "h.csv")
        assert [(row.step, row.module, row.head) for row in rows] == [
            (step, "net.attn", head) for step in range(3) for head in (0, 1)
        ]
        assert all(row.query_gradient_norm > 0 for row in rows)
        assert callback.watcher.unseen == ()
        assert not torch.nn.modules.module._has_any_global_hook()

    def test_lightning_that_an_alert_stops(self, torch, tmp_path):
        pytest.importorskip("lightning.pytorch")
        from analysis.audit.live.plugs.lightning import WatchCallback

        callback = WatchCallback(alert={"largest_score": 1e-6, "action": "raise"})
        _, fit = self.lightning_trainer(torch, tmp_path, [callback])
        with pytest.raises(AttentionAlert, match=r"net\.attn, head 0, step 0"):
            fit()
        assert not torch.nn.modules.module._has_any_global_hook()
        with watch(model_of(torch)):
            pass
