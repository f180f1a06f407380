"""The status of a VLMDeployment. Written by ``report`` as a document; described here.

Every field is optional: a status holds what is known so far. Integers carry their unit in the name;
``summary`` holds the strings that ``kubectl get`` shows.
"""

from typing import Annotated, Literal

from pydantic import Field

from vlm_operator.api.base import ApiModel, list_map

Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
LongCount = Annotated[int, Field(ge=0, le=2**53 - 1)]
Text = Annotated[str, Field(max_length=32768)]


class Condition(ApiModel):
    """One aspect of the state, in the shape of metav1.Condition."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    """type is Accepted, Sized, Applied, Available or Ready, which is the conjunction of the others."""
    status: Literal["True", "False", "Unknown"]
    """status is True, False or Unknown."""
    reason: Annotated[str, Field(max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")]
    """reason is one word in CamelCase for programs."""
    message: Text
    """message names the thing, the value, the limit and the next step."""
    last_transition_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    """lastTransitionTime is when the status last changed."""
    observed_generation: LongCount | None = None
    """observedGeneration is the generation of the spec that the condition speaks of."""


class Percentiles(ApiModel):
    """A quantity at three percentiles of the declared requests."""

    p50: Count | None = None
    """p50 is the median."""
    p95: Count | None = None
    """p95 is what 95 of 100 requests stay under."""
    p99: Count | None = None
    """p99 is what 99 of 100 requests stay under."""


class TokenCounts(ApiModel):
    """Tokens at the median, the 99th percentile, and the most."""

    p50: Count | None = None
    """p50 is the median."""
    p99: Count | None = None
    """p99 is what 99 of 100 stay under."""
    max: Count | None = None
    """max is the most."""


class MemoryShare(ApiModel):
    """A part of one GPU's memory."""

    part: Annotated[str, Field(min_length=1, max_length=64)]
    """part is what the memory is for."""
    mebibytes: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]
    """mebibytes is the size in MiB; headroom may be negative."""


class PlanStatus(ApiModel):
    """What runs."""

    digest: Text | None = None
    """digest identifies the plan: equal digests start equal pods."""
    model: Text | None = None
    """model is the checkpoint that is served."""
    model_revision: Text | None = None
    """modelRevision is the commit that is served, where the model hub described it."""
    quantization: Text | None = None
    """quantization is the format of its weights; none means plain."""
    engine_version: Text | None = None
    """engineVersion is the vLLM version."""
    accelerator: Text | None = None
    """accelerator is the GPU product, as in the label nvidia.com/gpu.product."""
    gpus_per_replica: Count | None = None
    """gpusPerReplica is the number of GPUs of one pod."""
    tensor_parallel_size: Count | None = None
    """tensorParallelSize is over how many GPUs each layer is split."""
    replicas: Count | None = None
    """replicas is the number of pods that the plan asks for, spare ones included."""
    max_model_len: Count | None = None
    """maxModelLen is the longest request in tokens, prompt and answer together."""
    max_num_seqs: Count | None = None
    """maxNumSeqs is the most requests that the engine runs at once."""
    max_num_batched_tokens: Count | None = None
    """maxNumBatchedTokens is the most tokens in one step of the engine."""
    images_per_prompt: Count | None = None
    """imagesPerPrompt is the most images that one request may carry."""
    max_pixels: LongCount | None = None
    """maxPixels is the cap on an image in pixels, where the model has such a cap."""
    cap_name: Text | None = None
    """capName is the name of the setting by which this model bounds an image."""
    cap_value: LongCount | None = None
    """capValue is the value of that setting."""
    gpu_memory_utilization_percent: Count | None = None
    """gpuMemoryUtilizationPercent is the share of the GPU's memory that the engine may use."""
    dtype: Text | None = None
    """dtype is the type of the activations."""
    kv_cache_dtype: Text | None = None
    """kvCacheDtype is the type of the KV cache."""
    encoder_parallel_mode: Text | None = None
    """encoderParallelMode says whether GPUs share the vision encoder's weights or its images."""
    cpu: Count | None = None
    """cpu is the number of CPU cores that one pod asks for."""
    host_memory: Text | None = None
    """hostMemory is the memory that one pod asks for."""
    shared_memory: Text | None = None
    """sharedMemory is the size of /dev/shm."""


class Estimate(ApiModel):
    """What to expect of the plan."""

    image_tokens: TokenCounts | None = None
    """imageTokens are the tokens of one image."""
    request_tokens: TokenCounts | None = None
    """requestTokens are the tokens of one request: images, text and answer."""
    memory_per_gpu: Annotated[
        tuple[MemoryShare, ...] | None,
        Field(alias="memoryPerGPU", max_length=32, json_schema_extra=list_map("part")),
    ] = None
    """memoryPerGPU are parts that sum to the memory of one GPU."""
    kv_cache_tokens: LongCount | None = None
    """kvCacheTokens is how many tokens the KV cache of one replica holds."""
    concurrent_requests: Count | None = None
    """concurrentRequests is how many of the largest requests the KV cache of one replica holds at once."""
    ttft_milliseconds: Percentiles | None = None
    """ttftMilliseconds is the time to the first token."""
    tpot_milliseconds: Percentiles | None = None
    """tpotMilliseconds is the time per output token after the first."""
    request_latency_milliseconds: Percentiles | None = None
    """requestLatencyMilliseconds is the time from arrival to the last token."""
    requests_per_minute_per_replica: Count | None = None
    """requestsPerMinutePerReplica is the rate that one replica sustains."""
    hourly_cost_cents: Count | None = None
    """hourlyCostCents is the price of all replicas per hour, absent where the price is unknown."""
    cost_cents_per_thousand_images: LongCount | None = None
    """costCentsPerThousandImages is the price of 1,000 images at the declared rate, rounded up; absent where the rate
    or the price is unknown."""
    binding_constraint: Text | None = None
    """bindingConstraint is what would break first if the load grew."""
    certainty: Literal["Measured", "Calibrated", "Datasheet", "Remembered"] | None = None
    """certainty is the weakest class of number that the estimate rests on: this very plan was measured, its GPU was, or
    only the GPU's datasheet is known; Remembered means that values of the model were not read from its files."""


class AlternativeStatus(ApiModel):
    """Another way to serve the workload, and why it was not chosen."""

    accelerator: Text | None = None
    """accelerator is the GPU product."""
    gpus_per_replica: Count | None = None
    """gpusPerReplica is the number of GPUs of one pod."""
    tensor_parallel_size: Count | None = None
    """tensorParallelSize is over how many GPUs each layer is split."""
    replicas: Count | None = None
    """replicas is the number of pods."""
    hourly_cost_cents: Count | None = None
    """hourlyCostCents is the price of all replicas per hour, absent where unknown."""
    verdict: Literal["Fits", "DoesNotFit"] | None = None
    """verdict says whether it would serve the workload."""
    reason: Text | None = None
    """reason is one word in CamelCase."""
    message: Text | None = None
    """message says why it was not chosen."""


class NoFitStatus(ApiModel):
    """Why there is no plan, and what would make one."""

    reason: Text | None = None
    """reason is one word in CamelCase."""
    message: Text | None = None
    """message says what is too large, by how much."""
    candidates: Count | None = None
    """candidates is how many combinations were judged."""
    nearest: Annotated[tuple[AlternativeStatus, ...] | None, Field(max_length=5)] = None
    """nearest are the combinations that failed by least."""
    suggestions: Annotated[tuple[Text, ...] | None, Field(max_length=16)] = None
    """suggestions are changes to the spec that would make it fit."""


class Summary(ApiModel):
    """Strings for people, derived from the numbers."""

    accelerator: Text | None = None
    """accelerator is for example 2 x H100-80GB."""
    hourly_cost: Text | None = None
    """hourlyCost is the price per hour, such as 4.20."""
    image_tokens: Text | None = None
    """imageTokens is the tokens of one image at the 99th percentile."""
    headroom: Text | None = None
    """headroom is the memory left on each GPU."""
    ready: Text | None = None
    """ready is ready and planned replicas, such as 1/2."""
    reason: Text | None = None
    """reason is that of the first condition that does not hold, or Serving."""


class VLMDeploymentStatus(ApiModel):
    """What the operator found and did."""

    conditions: Annotated[tuple[Condition, ...] | None, Field(max_length=16, json_schema_extra=list_map("type"))] = None
    """conditions are Accepted, Sized, Applied, Available and Ready."""
    observed_generation: LongCount | None = None
    """observedGeneration is the generation of the spec that this status speaks of."""
    replicas: Count | None = None
    """replicas is the number of pods that exist."""
    ready_replicas: Count | None = None
    """readyReplicas is the number of pods that serve."""
    selector: Text | None = None
    """selector is the label selector of the pods, for the scale subresource."""
    endpoint: Text | None = None
    """endpoint is the address of the OpenAI-compatible API inside the cluster."""
    plan: PlanStatus | None = None
    """plan is what runs; absent where nothing fits."""
    estimate: Estimate | None = None
    """estimate is what to expect of the plan."""
    alternatives: Annotated[tuple[AlternativeStatus, ...] | None, Field(max_length=5)] = None
    """alternatives are other ways to serve the workload, at most 5."""
    no_fit: NoFitStatus | None = None
    """noFit says why there is no plan."""
    summary: Summary | None = None
    """summary holds strings for people."""
