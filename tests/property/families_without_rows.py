"""Families that have no rows: the values of a published checkpoint, or the defaults of its classes, for the laws.

Origin: config.json and processor files of the model named, in the parts that count.
"""

from typing import Any

from tests.conformance.families import Group
from vlm_operator.sizing.tokens import ServerSettings

FAMILIES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "blip2": (
        "Blip2ForConditionalGeneration",
        {"num_query_tokens": 32, "vision_config": {"image_size": 224, "patch_size": 14}},
        {"size": {"height": 224, "width": 224}},
    ),
    "clip": (
        "CLIPModel",
        {"vision_config": {"image_size": 336, "patch_size": 14}},
        {"crop_size": {"height": 336, "width": 336}, "size": {"shortest_edge": 336}},
    ),
    "colpali": (
        "ColPaliForRetrieval",
        {"vlm_config": {"vision_config": {"image_size": 448, "patch_size": 14}}},
        {"size": {"height": 448, "width": 448}, "image_seq_length": 1024},
    ),
    "colultravbert": (
        "ColUltraVBertForRetrieval",
        {"vision_config": {"image_size": 512, "patch_size": 16}, "pixel_shuffle_factor": 4},
        {"size": {"longest_edge": 2048}, "max_image_size": {"longest_edge": 512}, "max_image_tiles": 8},
    ),
    "emu3": ("Emu3ForConditionalGeneration", {}, {"min_pixels": 262144, "max_pixels": 1048576, "spatial_factor": 8}),
    "glm4v": ("GLM4VForCausalLM", {"vision_config": {"image_size": 1120, "patch_size": 14}}, {}),
    "moondream3": ("HfMoondream", {"config": {}}, {}),
    "nemotron_parse": (
        "NemotronParseForConditionalGeneration",
        {"image_size": [2048, 1648], "encoder": {"patch_size": 16}},
        {"final_size": [2048, 1648]},
    ),
    "openvla": ("OpenVLAForActionPrediction", {"image_sizes": [224, 224]}, {}),
    "siglip": ("SiglipModel", {"vision_config": {"image_size": 384, "patch_size": 14}}, {"size": 384}),
}


def groups() -> list[Group]:
    """Return one group without rows for each family."""
    return [
        Group(
            name=name,
            family=name,
            architecture=architecture,
            settings=ServerSettings(),
            files={"config.json": config, "preprocessor_config.json": processor, "model": ""},
        )
        for name, (architecture, config, processor) in FAMILIES.items()
    ]
