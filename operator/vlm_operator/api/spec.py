"""The spec of a VLMDeployment as the user writes it. The CRD is generated from it.

Absent means absent: optional values are None or empty here. Only ``text``, ``output``, ``traffic``, weights,
``images.perRequest`` and ``images.repeatPercent`` have the engine's default as their value; the CRD carries no
defaults, so that the stored object is what the user wrote. Read by ``planning`` (sizes), ``render`` (pods) and
``controller``; parsed by ``validate``.
"""

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from vlm_operator.api.base import ApiModel, Rule, list_map, unique_by, whole
from vlm_operator.api.pod_template import Name, PodTemplate
from vlm_operator.api.storage import Storage

MAX_IMAGE_PIXELS: Final = 178_956_970
"""Pillow refuses more (DecompressionBombError, twice its MAX_IMAGE_PIXELS), and so does the engine."""
MAX_IMAGE_SIDE: Final = 65_535
"""The longest side that a JPEG can have."""
MAX_TOKENS: Final = 10_000_000
"""The longest context that any served model declares."""

Side = Annotated[int, whole(1, MAX_IMAGE_SIDE)]
Weight = Annotated[int, whole(1, 1_000_000)]
Tokens = Annotated[int, whole(1, MAX_TOKENS)]
Product = Annotated[str, Field(min_length=1, max_length=128)]
Region = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")]
Quantization = Literal["none", "fp8", "int8", "awq", "gptq", "int4", "nvfp4"]
KVCacheDtype = Literal["auto", "fp8"]
Argument = Annotated[str, Field(min_length=1, max_length=8192)]
SecretKey = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._A-Za-z0-9]+$")]


class TokenSecretRef(ApiModel):
    """The secret that holds the token for the model hub."""

    name: Name
    """name is the name of a secret in the same namespace. Required."""
    key: SecretKey = "token"
    """key is the key inside the secret. Default: token."""


class Model(ApiModel):
    """The model to serve."""

    id: Annotated[
        str,
        Field(
            min_length=1,
            max_length=256,
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?$",
        ),
    ]
    """id is the model's name on the hub, such as Qwen/Qwen2.5-VL-7B-Instruct. Required."""
    revision: Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")] | None = (
        None
    )
    """revision is a commit, tag or branch; a commit is recommended. Default: the hub's main branch."""
    source: Literal["Catalogue", "Hub", "ConfigMap"] | None = None
    """source says where the model's architecture and sizes come from: what this release knows, the model hub, or a
    ConfigMap. Default: Catalogue for a model that it has, else Hub."""
    config_map_name: Name | None = None
    """configMapName is a ConfigMap of the same namespace with the model's config.json, preprocessor_config.json and so
    on, by file name. Default: none; source ConfigMap needs it."""
    trust_remote_code: bool = False
    """trustRemoteCode lets the engine run code from the model's repository. Default: false."""
    token_secret_ref: TokenSecretRef | None = None
    """tokenSecretRef names the secret with the hub's token. Default: no token, enough for public models."""
    storage: Storage | None = None
    """storage says where the weights lie. Default: each pod downloads them to its own disk."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.configMapName) == (has(self.source) && self.source == 'ConfigMap')",
            message="configMapName and source ConfigMap go together; set both, or neither",
            field="configMapName",
            holds=lambda it: (it.config_map_name is not None) == (it.source == "ConfigMap"),
        ),
    )


class ImageCount(ApiModel):
    """Requests with this many images, and how frequent they are."""

    count: Annotated[int, whole(0, 256)]
    """count is the number of images in one request; 0 is a request of text only. Required."""
    weight: Weight = 1
    """weight is the share of such requests, relative to the other entries. Default: 1."""


class ImageSize(ApiModel):
    """Images of this size as clients send them, and how frequent they are."""

    width: Side
    """width is the image's width in pixels. Required."""
    height: Side
    """height is the image's height in pixels. Required."""
    weight: Weight = 1
    """weight is the share of such images, relative to the other entries. Default: 1."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"self.width * self.height <= {MAX_IMAGE_PIXELS}",
            quoted=("width", "height"),
            message=f"one image has more than {MAX_IMAGE_PIXELS} pixels, which the engine refuses to decode; "
            "let clients scale the image down and declare that size",
            holds=lambda it: it.width * it.height <= MAX_IMAGE_PIXELS,
        ),
    )


class Images(ApiModel):
    """The images that arrive."""

    per_request: Annotated[
        tuple[ImageCount, ...],
        Field(min_length=1, max_length=64, json_schema_extra=list_map("count")),
        unique_by("count"),
    ] = (ImageCount(count=1),)
    """perRequest says how many images a request carries. Default: one image in every request."""
    sizes: Annotated[
        tuple[ImageSize, ...],
        Field(min_length=1, max_length=256, json_schema_extra=list_map("width", "height")),
        unique_by("width", "height"),
    ]
    """sizes are the sizes of the images before any scaling, with their frequency. Required."""
    repeat_percent: Annotated[int, whole(0, 100)] = 0
    """repeatPercent is the share of images that were sent shortly before, which caches answer. Default: 0."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.perRequest) || self.perRequest.exists(entry, entry.count > 0)",
            message="every count is 0, so no request carries an image; add an entry with count 1 or more",
            field="perRequest",
            holds=lambda it: any(entry.count for entry in it.per_request),
        ),
    )


class PromptTokens(ApiModel):
    """Tokens of text in a prompt, images not counted."""

    p50: Tokens
    """p50 is the number of tokens of a typical prompt (the median). Required."""
    p99: Tokens
    """p99 is the number of tokens of a long prompt; longer ones are not planned for. Required."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.p50 <= self.p99",
            quoted=("p50", "p99"),
            message="p50 is more than p99; swap them or raise p99",
            field="p50",
            holds=lambda it: it.p50 <= it.p99,
        ),
    )


class Text(ApiModel):
    """The text that arrives with the images."""

    prompt_tokens: PromptTokens = PromptTokens(p50=300, p99=900)
    """promptTokens is the length of the prompts. Default: p50 300, p99 900."""
    shared_prefix_tokens: Annotated[int, whole(0, MAX_TOKENS)] = 0
    """sharedPrefixTokens is how many of these tokens begin every prompt alike (a system prompt). Default: 0."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.sharedPrefixTokens) || "
            "self.sharedPrefixTokens <= (has(self.promptTokens) ? self.promptTokens.p50 : 300)",
            quoted=("sharedPrefixTokens",),
            message="the shared prefix is longer than promptTokens.p50, of which it is a part; raise p50",
            field="sharedPrefixTokens",
            holds=lambda it: it.shared_prefix_tokens <= it.prompt_tokens.p50,
        ),
    )


class OutputTokens(ApiModel):
    """Tokens that the model writes."""

    p50: Tokens
    """p50 is the number of tokens of a typical answer (the median). Required."""
    max: Tokens
    """max is the most tokens that a client asks for (max_tokens). Required."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.p50 <= self.max",
            quoted=("p50", "max"),
            message="p50 is more than max; swap them or raise max",
            field="p50",
            holds=lambda it: it.p50 <= it.max,
        ),
    )


class Output(ApiModel):
    """The answers."""

    tokens: OutputTokens = OutputTokens(p50=150, max=500)
    """tokens is the length of the answers. Default: p50 150, max 500."""


class Traffic(ApiModel):
    """How much arrives: a rate or a number of requests in flight."""

    requests_per_minute: Annotated[int, whole(1, 1_000_000)] | None = None
    """requestsPerMinute is the mean rate over all replicas. Default: concurrentRequests counts."""
    burst_percent: Annotated[int, whole(100, 1000)] | None = None
    """burstPercent is the peak rate as a percentage of the mean. Default: 100, no bursts."""
    concurrent_requests: Annotated[int, whole(1, 100_000)] | None = None
    """concurrentRequests is the number in flight over all replicas. Default: requestsPerMinute counts."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.requestsPerMinute) != has(self.concurrentRequests)",
            message="set exactly one of requestsPerMinute and concurrentRequests",
            holds=lambda it: (it.requests_per_minute is None) != (it.concurrent_requests is None),
        ),
        Rule(
            cel="!has(self.burstPercent) || has(self.requestsPerMinute)",
            message="burstPercent needs requestsPerMinute; remove it or set requestsPerMinute",
            field="burstPercent",
            holds=lambda it: it.burst_percent is None or it.requests_per_minute is not None,
        ),
    )


class Workload(ApiModel):
    """What arrives; the sizing covers every request that is declared here."""

    images: Images
    """images are the images that arrive. Required."""
    text: Text = Text()
    """text is the text that arrives. Default: promptTokens p50 300, p99 900."""
    output: Output = Output()
    """output is the length of the answers. Default: tokens p50 150, max 500."""
    traffic: Traffic = Traffic(concurrent_requests=1)
    """traffic is how much arrives. Default: concurrentRequests 1."""


class Objective(ApiModel):
    """A latency that a percentile of the requests stays under."""

    percentile: Literal[50, 95, 99]
    """percentile is the share of requests that must meet the limit: 50, 95 or 99. Required."""
    milliseconds: Annotated[int, whole(1, 3_600_000)]
    """milliseconds is the limit. Required."""


class Objectives(ApiModel):
    """Latencies to stay under; a plan that cannot is no plan."""

    ttft: Objective | None = None
    """ttft is the time to the first token, images included. Default: no limit."""
    tpot: Objective | None = None
    """tpot is the time per output token after the first. Default: no limit."""
    request_latency: Objective | None = None
    """requestLatency is the time from arrival to the last token. Default: no limit."""


class Quality(ApiModel):
    """What must not be given up for a cheaper plan."""

    min_pixels_per_image: Annotated[int, whole(1, MAX_IMAGE_PIXELS)] | None = None
    """minPixelsPerImage is the smallest cap, in pixels, that the planner may put on images.
    Default: no declared image is made smaller than the model's own settings make it."""
    min_image_tokens: Annotated[int, whole(1, 1_000_000)] | None = None
    """minImageTokens is how many tokens a cap must leave of an image that has as many. Default: no such floor."""
    allowed_quantizations: Annotated[tuple[Quantization, ...], Field(max_length=8)] = ()
    """allowedQuantizations are the formats that the weights may have; a published checkpoint of the same model in one
    of them is taken where it makes the plan cheaper. Default: the model as it was published."""
    allowed_kv_cache_dtypes: Annotated[tuple[KVCacheDtype, ...], Field(alias="allowedKVCacheDtypes", max_length=2)] = ()
    """allowedKVCacheDtypes are the element types that the KV cache may have; fp8 is taken where it makes the plan
    cheaper. Default: auto, which is what the model was published with."""


class Accelerators(ApiModel):
    """Which GPUs may be used, and how many."""

    inventory: Literal["Cluster", "Catalogue"] | None = None
    """inventory says where GPUs come from: the cluster's nodes or the catalogue. Default: Cluster."""
    allowed: Annotated[tuple[Product, ...], Field(max_length=64)] = ()
    """allowed are GPU product names (label nvidia.com/gpu.product) or catalogue ids. Default: all."""
    denied: Annotated[tuple[Product, ...], Field(max_length=64)] = ()
    """denied are GPU product names or catalogue ids that are not used, also where allowed. Default: none."""
    max_per_replica: Annotated[int, whole(1, 16)] | None = None
    """maxPerReplica is the most GPUs of one replica. Default: as many as one node has."""
    max_nodes_per_replica: Annotated[int, whole(1, 16)] | None = None
    """maxNodesPerReplica is the most nodes of one replica. Every plan keeps a replica on one node, so that a higher
    limit changes nothing. Default: 1."""
    regions: Annotated[tuple[Region, ...], Field(max_length=16)] = ()
    """regions are values of the node label topology.kubernetes.io/region. Pods run nowhere else, and a node without the
    label is not used. Default: anywhere."""
    max_hourly_cost_cents: Annotated[int, whole(1, 100_000_000)] | None = None
    """maxHourlyCostCents is the most that all replicas together may cost per hour. Default: no limit."""


class Scaling(ApiModel):
    """How many replicas run."""

    min_replicas: Annotated[int, whole(1, 1000)] | None = None
    """minReplicas is the fewest replicas; kubectl scale sets it. Default: 1."""
    max_replicas: Annotated[int, whole(1, 1000)] | None = None
    """maxReplicas is the most replicas that the plan may ask for. Default: 64, or the fewest allowed where
    that is more."""
    spare_replicas: Annotated[int, whole(0, 100)] | None = None
    """spareReplicas is how many replicas run beyond what the traffic needs, so that every objective still holds while
    as many are down; 1 is N+1. minReplicas and maxReplicas count them too. Default: 0."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
            quoted=("minReplicas", "maxReplicas"),
            message="minReplicas is more than maxReplicas; swap them or raise maxReplicas",
            field="minReplicas",
            holds=lambda it: it.min_replicas is None or it.max_replicas is None or it.min_replicas <= it.max_replicas,
        ),
        Rule(
            cel="!has(self.spareReplicas) || !has(self.maxReplicas) || self.spareReplicas < self.maxReplicas",
            quoted=("spareReplicas", "maxReplicas"),
            message="spareReplicas leaves no replica of maxReplicas to serve; lower it or raise maxReplicas",
            field="spareReplicas",
            holds=lambda it: (
                it.spare_replicas is None or it.max_replicas is None or it.spare_replicas < it.max_replicas
            ),
        ),
    )


class EnvVar(ApiModel):
    """An environment variable of the model server."""

    name: Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    """name is the name of the variable. Required."""
    value: Annotated[str, Field(max_length=32768)] = ""
    """value is the value; numbers need quotes. Default: empty."""


class Engine(ApiModel):
    """The model server."""

    version: Annotated[str, Field(max_length=64, pattern=r"^[0-9]+\.[0-9]+\.[0-9]+([.+-]?[A-Za-z0-9]+)*$")] | None = (
        None
    )
    """version is the vLLM version to plan for and to run. Default: the newest that the catalogue knows."""
    image: Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[^\s]+$")] | None = None
    """image is the container image. Default: vllm/vllm-openai at the version's tag."""
    extra_args: Annotated[tuple[Argument, ...], Field(max_length=64)] = ()
    """extraArgs are more arguments of vllm serve, such as --max-num-seqs=64. A flag that decides what fits is obeyed by
    the plan; one that would make the plan untrue, or that another field is for, is refused. Default: none."""
    env: Annotated[tuple[EnvVar, ...], Field(max_length=64, json_schema_extra=list_map("name")), unique_by("name")] = ()
    """env are environment variables of the server. Default: none beside those of the operator."""


class Compliance(ApiModel):
    """What rules apply to who serves."""

    jurisdiction: Annotated[str, Field(pattern="^[A-Z]{2}$")] | None = None
    """jurisdiction is where the operating company sits: an ISO 3166 code, or EU. A model whose licence grants no
    rights there, or whose licence is not known, is refused. Default: licences are not looked at."""


class VLMDeploymentSpec(ApiModel):
    """What to serve, what arrives, and what is allowed."""

    model: Model
    """model is the model to serve. Required."""
    workload: Workload
    """workload is what arrives. Required."""
    objectives: Objectives = Objectives()
    """objectives are latencies to stay under. Default: none."""
    quality: Quality = Quality()
    """quality is what must not be given up. Default: images as the model's own settings make them."""
    accelerators: Accelerators = Accelerators()
    """accelerators says which GPUs may be used. Default: every known GPU of the cluster."""
    scaling: Scaling = Scaling()
    """scaling bounds the number of replicas. Default: at least 1, at most what the plan needs."""
    engine: Engine = Engine()
    """engine is the model server. Default: the newest vLLM that the catalogue knows."""
    compliance: Compliance = Compliance()
    """compliance says which licences do. Default: licences are not looked at."""
    pod_template: PodTemplate = PodTemplate()
    """podTemplate is added to the pods. Default: nothing is added."""
    suspend: bool = False
    """suspend takes all replicas away and keeps the plan. Default: false."""
