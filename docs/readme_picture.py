"""Draw the README's picture: `python docs/readme_picture.py` writes docs/scaling.svg."""

from pathlib import Path

from analysis import run_study
from analysis.show.drawing import svg
from analysis.show.plots import study_figure

D_K = [2**power for power in range(11)]


def main() -> None:
    """Measure three quantities at ten keys through the attention core and draw them over the exact predictions."""
    studies = [
        run_study(quantity, d_k=D_K, n_keys=10, statistic=statistic, replicates=20_000, sampler="direct", seed=0)
        for quantity, statistic in (("score", "variance"), ("entropy", "mean"), ("jacobian_trace", "mean"))
    ]
    Path(__file__).with_name("scaling.svg").write_text(svg(study_figure(*studies)), encoding="utf-8")


if __name__ == "__main__":
    main()
