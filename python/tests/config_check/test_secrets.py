"""Nothing secret lands in a pack, wherever it was planted."""

from __future__ import annotations

from pathlib import Path

import pytest

from probe.config_check import scripts, secrets

from .conftest import Packed

PLANTED = {
    "password": "hunter2hunter2",
    "token": "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345",
    "github": "ghp_0123456789abcdefghijABCDEFGHIJ012345",
    "openai": "sk-proj-0123456789abcdefghijABCDEFGHIJ",
    "amazon": "AKIAIOSFODNN7EXAMPLE",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    "opaque": "plain-but-mine-4711",
}

SCRIPT = """
export WANDB_API_KEY=plain-but-mine-4711
MYSQL_PWD='hunter2hunter2'
ARGS=(
    --lr 1e-4   # the rate
    --bf16
    --api-key plain-but-mine-4711
    --hf-token=hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345
    --db-url "postgres://anna:hunter2hunter2@db.example/x"
    --header "Authorization: Bearer plain-but-mine-4711"
)
torchrun --nproc_per_node 8 train.py ${ARGS[@]} --max-new-tokens 512 --use_auth_token true
"""


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        ("HF_TOKEN", True), ("apiKey", True), ("aws.secret.access", True), ("MYSQL_PWD", True), ("db-password", True),
        ("APIKey", True), ("private_pem", True), ("auth", True), ("tokenizer", False), ("monkey", False), ("author", False),
        ("learning_rate", False), ("keyboard", False), ("passwords_file", False), ("hidden", False),
    ],
)
def test_names_say_what_is_secret(name: str, hidden: bool) -> None:
    assert secrets.is_secret(name) is hidden


def test_numbers_and_bools_stay() -> None:
    assert secrets.clean({"max_new_tokens": 512, "use_auth_token": True, "token": "512", "key": None}) == {
        "max_new_tokens": 512, "use_auth_token": True, "token": "512", "key": None,
    }


@pytest.mark.parametrize("secret", PLANTED.values())
@pytest.mark.parametrize(
    "form",
    [
        "{token_assigned}", "--api-key {}", "--api-key={}", "https://user:{}@host/x", "https://{}@host/x",
        "password={}", '"password": "{}"', "Authorization: Bearer {}", "https://host/x?token={}&y=1", "export DB_PASSWD='{}'",
    ],
)
def test_forms_of_text(secret: str, form: str) -> None:
    text = form.replace("{token_assigned}", "MY_TOKEN={}").replace("{}", secret)
    assert secret not in secrets.text(text)


def test_arguments_of_a_command_line() -> None:
    given = ["--lr", "1e-4", "--api-key", "plain-but-mine-4711", "--token=abcdefgh", "--seed", "3", "--key-file", "--flag", "DB_PASSWORD=x1y2z3"]
    assert secrets.arguments(given) == [
        "--lr", "1e-4", "--api-key", "***", "--token=***", "--seed", "3", "--key-file", "--flag", "DB_PASSWORD=***",
    ]


def test_home_directories_become_a_tilde(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/data/people/anna")
    assert secrets.text("/data/people/anna/run/x.yaml") == "~/run/x.yaml"
    assert secrets.text("/home/bert/run:/opt/lib") == "~/run:/opt/lib"
    assert secrets.text("/data/people/annabel/x") == "/data/people/annabel/x"


def test_objects_of_other_classes_are_named_not_printed() -> None:
    class Client:
        def __repr__(self) -> str:
            return "Client(token='plain-but-mine-4711')"

    assert secrets.clean({"client": Client(), "path": Path("/x/y")}) == {"client": "Client", "path": "/x/y"}


def test_no_planted_secret_is_in_a_pack(packed: Packed, tmp_path: Path) -> None:
    launch = tmp_path / "launch.sh"
    launch.write_text(SCRIPT)
    config = tmp_path / "config.yaml"
    config.write_text("data:\n  url: s3://AKIAIOSFODNN7EXAMPLE:hunter2hunter2@bucket/x\n  api_token: plain-but-mine-4711\n")
    plant = "\n".join(
        [
            "import sys",
            f"sys.argv += ['--api-key', '{PLANTED['opaque']}', '--url=https://me:{PLANTED['password']}@host/', '{PLANTED['jwt']}']",
            f"args.hub_token = '{PLANTED['opaque']}'; args.note = 'use {PLANTED['token']} and {PLANTED['openai']}'",
            f"args.nested = {{'deep': [{{'client_secret': '{PLANTED['opaque']}'}}], 'url': 'http://{PLANTED['opaque']}@h'}}",
            f"model.extra_repr = lambda: 'password={PLANTED['password']}'",
        ]
    )
    call = (
        'pack(model, os.environ["PACK"], steps=2)',
        f'pack(model, os.environ["PACK"], steps=2, files=[{str(launch)!r}, {str(config)!r}], '
        f"extra={{'wandb': {{'api_key': '{PLANTED['opaque']}'}}, 'lr': 0.1}})",
    )
    pack = packed(
        ("# PACK", plant),
        call,
        ("temperature=1.0)\n            loss", f"temperature=1.0, note='{PLANTED['github']}')\n            loss"),
        ("temperature=1.0):", "temperature=1.0, note=''):"),
        environment={
            "WANDB_API_KEY": PLANTED["opaque"],
            "TORCH_HUB_TOKEN": PLANTED["opaque"],
            "NCCL_NET_PLUGIN": f"https://u:{PLANTED['password']}@h",
            "CUDA_CACHE_PATH": PLANTED["amazon"],
            "MY_SETTING": PLANTED["opaque"],
        },
    )
    everything = "".join(pack.text.values())
    assert [name for name, secret in PLANTED.items() if secret in everything] == []
    assert "WANDB_API_KEY" in pack.part("env")["names"]
    script = next(source for source in pack.part("hyperparameters")["sources"] if source["name"] == "launch.sh")
    assert script["values"]["lr"] == 1e-4 and script["values"]["bf16"] is True and script["values"]["max-new-tokens"] == 512


def test_a_launch_script_is_read_as_the_shell_would() -> None:
    options = scripts.shell(
        'NAME="llama 7b"\nLR=3e-5\nEXTRA="--beta 2"\nOPTS="--name \'$NAME\' --lr=${LR} $EXTRA"\nOPTS+=" --on"\n'
        "deepspeed --num_gpus 4 \\\n  train.py $OPTS --list 1 2 3 # --not-this 1\n"
    )
    assert options == {
        "num_gpus": 4, "name": "llama 7b", "lr": 3e-5, "beta": 2, "on": True, "list": [1, 2, 3],
    }
