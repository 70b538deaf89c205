"""Faults, tried for real: killed processes, full disks, cut downloads, wrong folders, jumping
clocks. Nothing recorded is lost.
"""

import contextlib
import http.server
import json
import multiprocessing
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

import speclab.files as parts
from speclab.files import part_facts, part_file
from speclab.models.pairs import load_model, model_folder
from speclab.profiles import ROOT, ModelSpec
from speclab.runs import RunError, load_run, record_run


@pytest.fixture
def profile(random_profile, tmp_path):
    """The random pair over 24 short prompts, a block each."""
    rows = [
        {"prompt_id": f"{d}-{i}", "domain": d, "prompt": "a b c d e f"[: 1 + i]}
        for d in ("code", "chat")
        for i in range(12)
    ]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return random_profile.replace(
        prompts=str(tmp_path / "prompts.jsonl"),
        prompts_per_domain=12,
        domains=("code", "chat"),
        block_prompts=1,
        max_new_tokens=8,
    )


def contents(folder):
    return {
        name: (folder / name).read_bytes()
        for name in ("trace.parquet", "nodes.parquet")
    }


def forked(work) -> int:
    """Run `work` in a forked process, which has everything loaded already; its process id."""
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException), open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), 1), os.dup2(nothing.fileno(), 2)
            work()
            os._exit(0)
        os._exit(1)
    return pid


@pytest.mark.parametrize("kills", [12, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_many_times_at_random_moments_it_ends_with_the_same_bytes(
    profile, random_pair, tmp_path, kills
):
    began = time.perf_counter()
    whole = contents(record_run(profile, tmp_path / "whole", random_pair, iter).folder)
    usual, folder, rng, killed, done = (
        time.perf_counter() - began,
        tmp_path / "killed",
        np.random.default_rng(0),
        0,
        [],
    )
    while killed < kills:
        pid = forked(lambda: record_run(profile, folder, random_pair, iter))
        time.sleep(rng.uniform(0, 0.3 * usual))
        os.kill(pid, signal.SIGKILL)
        killed += os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        done.append(len(list(folder.glob("parts/*.json"))))
        if (
            folder / "manifest.json"
        ).is_file():  # it had finished: begin again, with kills in other places
            assert contents(folder) == whole
            shutil.rmtree(folder)
    record_run(profile, folder, random_pair, iter)
    assert contents(folder) == whole and not list(folder.rglob("*.tmp"))
    assert any(0 < n < 24 for n in done), "some were killed in the middle"


def test_a_disk_that_is_full_loses_nothing(profile, random_pair, tmp_path):
    """/dev/full refuses every byte with the kernel's own error."""
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    whole = contents(record_run(profile, tmp_path / "whole", random_pair, iter).folder)
    folder = tmp_path / "full"
    (folder / "parts").mkdir(parents=True)
    blocked = folder / "parts" / "00007.nodes.parquet.tmp"
    blocked.symlink_to("/dev/full")
    with pytest.raises(
        RunError, match="No space left on device. Finished blocks are kept; free space"
    ):
        record_run(profile, folder, random_pair, iter)
    assert len(list(folder.glob("parts/*.json"))) == 7
    blocked.unlink(missing_ok=True)
    assert contents(record_run(profile, folder, random_pair, iter).folder) == whole


def test_of_two_runs_on_one_folder_the_second_is_refused_and_the_first_goes_on(
    profile, random_pair, tmp_path
):
    folder = tmp_path / "run"
    pid = forked(lambda: record_run(profile, folder, random_pair, iter))
    try:
        deadline = time.monotonic() + 60
        while not list(folder.glob("parts/*.json")) and time.monotonic() < deadline:
            time.sleep(0.005)
        os.kill(pid, signal.SIGSTOP)  # so that it is surely in the middle
        with pytest.raises(
            RunError,
            match="being written by another run; wait for it or choose another folder",
        ):
            record_run(profile, folder, random_pair, iter)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert contents(folder) == contents(
        record_run(profile, tmp_path / "other", random_pair, iter).folder
    )


@pytest.mark.parametrize(
    "name", ["00003.nodes.parquet", "00003.trace.parquet", "00003.json"]
)
@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "gone"])
def test_a_damaged_part_is_noticed_and_recorded_again(
    profile, random_pair, tmp_path, name, damage, capfd
):
    folder = record_run(
        profile.replace(prompts_per_domain=3), tmp_path / "run", random_pair, iter
    ).folder
    whole, part = contents(folder), folder / "parts" / name
    bytes_ = part.read_bytes()
    middle = len(bytes_) // 2
    if damage == "gone":
        part.unlink()
    else:
        flipped = (
            bytes_[:middle] + bytes([bytes_[middle] ^ 0x10]) + bytes_[middle + 1 :]
        )
        part.write_bytes(
            {"cut": bytes_[:middle], "flipped": flipped, "empty": b""}[damage]
        )
    capfd.readouterr()
    record_run(profile.replace(prompts_per_domain=3), folder, random_pair, iter)
    assert contents(folder) == whole
    if not (
        name.endswith("json") and damage in ("gone", "flipped")
    ):  # a marker that is gone is a block that never was
        assert "part 3 in" in capfd.readouterr().err


def test_a_finished_file_that_is_damaged_is_refused(profile, random_pair, tmp_path):
    run = record_run(
        profile.replace(prompts_per_domain=1), tmp_path / "run", random_pair, iter
    )
    path = run.folder / "nodes.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(RunError, match=r"nodes.parquet is damaged.*record it again"):
        load_run(run.folder)


# bits turned in each file
FLIPS = [100, pytest.param(300, marks=pytest.mark.slow)]


def flipped(path, rng, flips):
    """A file's content with one bit turned, so many times."""
    content = path.read_bytes()
    for _ in range(flips):
        turned = bytearray(content)
        turned[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
        yield bytes(turned)


@pytest.fixture
def finished(profile, random_pair, tmp_path):
    one = profile.replace(prompts_per_domain=1)
    return record_run(one, tmp_path / "run", random_pair, iter)


@pytest.mark.parametrize("flips", FLIPS)
@pytest.mark.parametrize("name", ["trace.parquet", "nodes.parquet", "manifest.json"])
def test_no_turned_bit_of_a_finished_run_is_read(name, finished, flips):
    path, refused = finished.folder / name, 0
    for content in flipped(path, np.random.default_rng(14), flips):
        path.write_bytes(content)
        try:
            found = load_run(finished.folder)
        except RunError as error:
            assert name in str(error) and "\n" not in str(error)
            refused += 1
        else:  # an e of a number may become an E
            assert name == "manifest.json" and found.manifest == finished.manifest
    assert refused >= flips - 5


@pytest.mark.parametrize("flips", FLIPS)
@pytest.mark.parametrize("name", ["json", "trace.parquet", "nodes.parquet"])
def test_no_turned_bit_of_a_part_is_used(name, finished, capsys, flips):
    path, whole = part_file(finished.folder, 0, name), part_facts(finished.folder, 0)
    for content in flipped(path, np.random.default_rng(41), flips):
        path.write_bytes(content)
        assert part_facts(finished.folder, 0) in (None, whole)
    assert capsys.readouterr().err.count("part 0 in") >= flips - 5


def test_a_part_of_an_older_kit_still_counts(finished):
    marker = part_file(finished.folder, 0, "json")
    facts = json.loads(marker.read_text())
    del facts["seal"]
    marker.write_text(json.dumps(facts))
    assert part_facts(finished.folder, 0) == facts
    marker.write_text(json.dumps(facts | {"seel": "x"}))
    assert part_facts(finished.folder, 0) is None


def test_a_clock_that_jumps_changes_no_byte(
    profile, random_pair, tmp_path, monkeypatch
):
    whole = contents(record_run(profile, tmp_path / "whole", random_pair, iter).folder)
    jumps = iter(np.random.default_rng(1).uniform(0, 4e9, 100_000).tolist())
    monkeypatch.setattr(time, "time", lambda: next(jumps))
    assert (
        contents(record_run(profile, tmp_path / "jumping", random_pair, iter).folder)
        == whole
    )


# ---- models and downloads ------------------------------------------------------------------------


def test_gptq_weights_without_their_configuration_are_refused(tmp_path):
    folder = tmp_path / "bare"
    shutil.copytree(ROOT / "data/pairs/tiny/target-gptq", folder)
    (folder / "quantize_config.json").unlink()
    config = json.loads((folder / "config.json").read_text())
    del config["quantization_config"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="weights are missing or of another shape"):
        load_model(ModelSpec(str(folder), device="cpu"))


def test_weights_that_are_not_whole_are_refused(random_folders, tmp_path):
    folder = tmp_path / "lacking"
    shutil.copytree(random_folders[0], folder)
    weights = load_file(folder / "model.safetensors")
    lost = weights.pop("model.layers.1.mlp.down_proj.weight")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(
        ValueError,
        match=r"1 weights are missing or of another shape, as .'model\.layers\.1\.mlp\.down_proj",
    ):
        load_model(ModelSpec(str(folder), device="cpu"))
    save_file(
        weights | {"model.layers.1.mlp.down_proj.weight": lost[:, :4].contiguous()},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    with pytest.raises(
        ValueError,
        match=r"1 weights are missing or of another shape, as .'model\.layers\.1\.mlp\.down_proj",
    ):
        load_model(ModelSpec(str(folder), device="cpu"))


def test_a_tokenizer_that_adds_no_bos_works_and_an_empty_prompt_is_named(
    random_folders, random_pair, random_profile, tmp_path
):
    tokenizer = random_pair.tokenizer
    assert tokenizer("a b")["input_ids"][0] != tokenizer.bos_token_id, (
        "the random pair's tokenizer adds none"
    )
    (tmp_path / "prompts.jsonl").write_text(
        '{"prompt_id": "one", "domain": "code", "prompt": "a"}'
    )
    one = random_profile.replace(
        prompts=str(tmp_path / "prompts.jsonl"),
        prompts_per_domain=1,
        domains=("code",),
        max_new_tokens=4,
    )
    assert len(record_run(one, tmp_path / "run", random_pair, iter).trace) >= 1
    (tmp_path / "prompts.jsonl").write_text(
        '{"prompt_id": "none", "domain": "code", "prompt": " "}'
    )
    with pytest.raises(ValueError, match="line 1: prompt is .*not empty"):
        record_run(one, tmp_path / "other", random_pair, iter)


class Hub(http.server.BaseHTTPRequestHandler):
    """A hub of one model that breaks the first downloads of its weights off in the middle, and
    knows ranges.
    """

    folder, commit, cuts, ranges = Path(), "0123456789" * 4, 0, []

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def answer(self, body: bool) -> None:
        """Model information, or a file or its rest."""
        path = self.path.split("?")[0]
        if "/api/models/" in path:
            if "wrong" in path:
                return self.send_error(404)
            files = sorted(self.folder.iterdir())
            if "/tree/" in path:
                tree = [
                    {
                        "type": "file",
                        "path": p.name,
                        "size": p.stat().st_size,
                        "oid": "0" * 40,
                    }
                    for p in files
                ]
                return self.send(json.dumps(tree).encode(), body)
            names = [{"rfilename": p.name} for p in files]
            return self.send(
                json.dumps(
                    {"id": "owner/name", "sha": self.commit, "siblings": names}
                ).encode(),
                body,
            )
        file = self.folder / path.rsplit("/", 1)[-1]
        if not file.is_file():
            return self.send_error(404)
        content, start = file.read_bytes(), 0
        if given := self.headers.get("Range"):
            start = int(given.removeprefix("bytes=").split("-")[0])
            if body and file.suffix == ".safetensors":
                Hub.ranges.append(start)
        if body and file.suffix == ".safetensors" and Hub.cuts > 0:
            Hub.cuts -= 1
            return self.send(
                content, body, start, stop=start + (len(content) - start) // 2
            )
        return self.send(content, body, start)

    def send(
        self, content: bytes, body: bool, start: int = 0, stop: int | None = None
    ) -> None:
        """Headers that promise everything from `start`; the bytes up to `stop`, then the line goes
        dead.
        """
        self.send_response(206 if start else 200)
        if start:
            self.send_header(
                "Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}"
            )
        self.send_header("Content-Length", str(len(content) - start))
        self.send_header("ETag", f'"{hash(content) & 0xFFFFFFFF:x}"')
        self.send_header("X-Repo-Commit", self.commit)
        self.send_header("Accept-Ranges", "bytes")
        self.end_headers()
        if body:
            self.wfile.write(content[start:stop])
        self.close_connection = True


@pytest.fixture
def hub(random_folders, tmp_path):
    """A hub on this machine; its weights are larger than what the client holds before it writes to
    disk.
    """
    Hub.folder, Hub.cuts, Hub.ranges = tmp_path / "hub", 0, []
    shutil.copytree(random_folders[0], Hub.folder)
    (Hub.folder / "model.safetensors").write_bytes(
        np.random.default_rng(0).bytes(30 * 2**20)
    )
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def fetch(
    hub: str, cache: Path, model: str = "owner/name", revision: str | None = None
) -> tuple[str, str]:
    """The folder of `model_folder`, or else what its ValueError says, in a copy of this process
    that imports the hub's client anew: it reads its address then.
    """

    def ask(sender) -> None:
        for name in [n for n in os.environ if n.startswith(("HF_", "SPECLAB_MODELS"))]:
            del os.environ[name]
        os.environ |= {
            "HF_ENDPOINT": hub,
            "HF_HOME": str(cache),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }
        for name in [n for n in sys.modules if n.startswith("huggingface_hub")]:
            del sys.modules[name]
        try:
            spec = ModelSpec(model, revision=revision)
            sender.send((str(model_folder(spec)), ""))
        except ValueError as error:
            sender.send(("", str(error)))

    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=ask, args=(sender,))
    process.start()
    sender.close()
    try:
        assert receiver.poll(200)
        return receiver.recv()
    finally:
        process.kill()
        process.join()


@pytest.mark.parametrize("cuts", [1, 20])
def test_a_download_that_is_cut_goes_on_where_it_stopped(hub, tmp_path, cuts):
    """One cut: the client tries again by itself.

    Twenty: it gives up with our words, and the next call goes on from the bytes it has.
    """
    Hub.cuts = cuts
    found, said = fetch(hub, tmp_path / "cache")
    if cuts > 1:
        assert not found and "nor to be had from the hub" in said
        assert "SPECLAB_MODELS" in said
        Hub.cuts = 0
        found, said = fetch(hub, tmp_path / "cache")
    assert found, said
    folder = Path(found)
    assert (folder / "model.safetensors").read_bytes() == (
        Hub.folder / "model.safetensors"
    ).read_bytes() and folder.name == Hub.commit
    assert Hub.ranges and max(Hub.ranges) > 0, (
        "it asked for the rest, not for all of it again"
    )


def test_a_wrong_revision_is_named_with_what_to_do(hub, tmp_path):
    found, said = fetch(hub, tmp_path / "cache", revision="wrong" + "0" * 35)
    assert not found and "revision wrong0" in said
    assert parts.SCHEMA_VERSION, "nothing else was touched"
