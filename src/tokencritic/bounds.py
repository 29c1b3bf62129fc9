"""Bounds of values from files and flags. They are checked before memory is allocated or work starts.

The bounds are far above every published model and data set, and low enough to reject mistyped numbers.
"""

FILE_BYTES = 2**23  # JSON and other files that are read whole
YAML_BYTES = 2**17
DEPTH = 32  # nested lists and objects
DIGITS = 20  # digits of an integer, enough for 64 bits
EXPANSION, EXPANDED_BYTES = 200, 2**28  # compressed content may grow by this factor, beyond this size
TREE_NODES = 10**6  # tensors and modules of a checkpoint
CLASSES = 2**20
PARAMETERS = 2 * 10**10  # of a model to train

# The largest integer of each name: a field of a config, a setting or a flag.
MOST: dict[str, int] = {
    **dict.fromkeys(("num_classes", "codebook_size", "pixel_codebook_size", "num_tokens", "places"), CLASSES),
    **dict.fromkeys(("layers", "encoder_layers", "decoder_layers", "num_features", "registers"), 1000),
    **dict.fromkeys(("blocks", "encoder_blocks", "decoder_blocks", "encoder_kernel", "factor", "margin"), 1000),
    **dict.fromkeys(("width", "encoder_width", "decoder_width", "latent_width", "feature_width", "filters"), 2**16),
    **dict.fromkeys(
        ("code_width", "pixel_code_width", "heads", "image_size", "size", "multipliers", "channels"), 2**16
    ),
    "mlp_width": 2**18,
    **dict.fromkeys(("bits_per_part", "splits"), 32),
    **dict.fromkeys(("steps", "candidates", "crops_per_image", "seed_sets", "resamples"), 10**4),
    **dict.fromkeys(("nfe", "cost"), 1000),
    **dict.fromkeys(("num", "num_images_per_label", "reference_num", "first"), 2 * 10**6),
    **dict.fromkeys(("batch_size", "accumulation", "ranks", "fills"), 2**16),
    "budget": 10**9,
    **dict.fromkeys(("rows", "workers"), 1024),
    "most_images": 10**6,
    "most_waiting": 10**4,
}
TRAINING_STEPS = 10**9
SETTINGS = 10**4  # of a sweep
TRIALS = 10**4  # of a tuning, all of equally many images
