"""Examples at the end of each command's help page: lines that run as they stand; `compare` needs files of a run."""

EXAMPLES = {
    "list": ("attnsym list", "attnsym list quantities", "attnsym list laws --json"),
    "explain": ('attnsym explain --query 1,0,1,0 --keys "1,0,-1,0;1,0,1,0" --values "2;6"',),
    "derive": (
        "attnsym derive score-variance",
        'attnsym derive score-variance --without "independent(q, k)"',
        "attnsym derive score-mean --format latex",
    ),
    "verify": ("attnsym verify", "attnsym verify score-variance score-mean"),
    "prove": (
        'attnsym prove "Var(Sum(q[i]*k[i], i))" d_k --assume "independent(q,k), independent_components(q), '
        'zero_mean(q), zero_mean(k), unit_variance(q), unit_variance(k)"',
    ),
    "compute": (
        'attnsym compute "E(Dot(k, q)**4)" --assume "independent(q,k), independent_components(q), '
        'independent_components(k), law(q, normal), law(k, normal)"',
    ),
    "predict": (
        "attnsym predict entropy --d-k 512 --n-keys 10 --scale sqrt,unscaled",
        "attnsym predict max_weight --sigma 1 --n-keys 10,100,1e3",
        "attnsym predict sink_weight --d-k 64 --n-keys 128 --sink 0",
    ),
    "solve": (
        "attnsym solve entropy_fraction 0.5 --n-keys 1024 --d-k 64",
        "attnsym solve entropy_fraction 0.5 --n-keys 4096 --d-k 64 --score cosine",
    ),
    "design": ("attnsym design --d-model 768 --d-k 64 --n-keys 1024 --init normal:0.02",),
    "length": ("attnsym length --n-keys 1024,16384 --needle 8",),
    "study": (
        "attnsym study entropy --d-k 16:256:2x --n-keys 10 --replicates 2000",
        "attnsym study score --d-k 64 --law laplace --statistic variance,median --replicates 2000",
    ),
    "confirm": (
        "attnsym confirm score-variance --cells",
        "attnsym confirm --budget 0.1",
        "attnsym confirm --published",
    ),
    "published": ("attnsym published", "attnsym published sigmoid-bias-keeps-row-sums"),
    "audit": ("attnsym audit --example", "attnsym audit --callable attnsym:scaled_dot_product_attention"),
    "compare": (
        "attnsym compare step1000.safetensors step2000.safetensors",
        "attnsym compare checkpoint-1000 checkpoint-2000 --weights",
    ),
    "report": ("attnsym report", "attnsym report --no-confirm -o quick.html"),
}
