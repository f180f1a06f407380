# syntax=docker/dockerfile:1
# The operator's image: Python, the hash-locked packages, our source. No compiler, no shell needed, no root.

FROM python:3.11-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1
RUN python -m venv /opt/vlm-operator
COPY requirements/operator.txt /build/requirements.txt
RUN /opt/vlm-operator/bin/pip install --require-hashes --no-deps --only-binary=:all: -r /build/requirements.txt
COPY operator/vlm_operator /build/vlm_operator
# Copied, not installed: a build backend would be one more thing to lock. Compiled here, as the root is read-only.
RUN cp -r /build/vlm_operator "$(/opt/vlm-operator/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/" \
 && /opt/vlm-operator/bin/python -m compileall -q /opt/vlm-operator/lib

FROM python:3.11-slim
LABEL org.opencontainers.image.title="vlm-operator" \
      org.opencontainers.image.description="Sizes vision-language models for Kubernetes and keeps vLLM running that way." \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/opt/vlm-operator/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
COPY --from=build /opt/vlm-operator /opt/vlm-operator
USER 65532:65532
WORKDIR /tmp
EXPOSE 8080
ENTRYPOINT ["python", "-m", "vlm_operator.controller"]
