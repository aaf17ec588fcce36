//! Limits on everything a file may ask for.

/// Largest header of a safetensors or npy file, in bytes. The safetensors format itself allows 100 MB.
pub const MAX_HEADER_BYTES: u64 = 100_000_000;

/// Largest header of a compressed `npy` member of an archive, in bytes; it must be expanded to be inspected.
pub const MAX_DEFLATED_HEADER_BYTES: u64 = 1 << 20;

/// Largest pickle program (`data.pkl`) accepted, in bytes. A state dict of 100,000 tensors needs about 20 MB.
pub const MAX_PICKLE_BYTES: u64 = 256 << 20;

/// Most values the pickle interpreter may create, memo included. A tensor of a state dict needs about
/// 20.
pub const MAX_PICKLE_VALUES: usize = 20_000_000;

/// Most values listed from one file, containers included, after nested lists and maps are flattened. A pickle may
/// refer to one list many times, so its size does not bound this.
pub const MAX_LISTED_VALUES: usize = 4_000_000;

/// Most bytes of names, texts and shapes of all values listed from one file.
pub const MAX_LISTED_BYTES: usize = 512 << 20;

/// Longest name of a listed value, in bytes: its nested keys, joined.
pub const MAX_NAME_BYTES: usize = 4096;

/// Deepest nesting of lists and maps in an index or a state dict.
pub const MAX_DEPTH: usize = 200;

/// Most members of a torch checkpoint, one per storage. Each takes about 700 bytes while the file is opened; 100,000 weights
/// with two optimizer moments each are 300,000.
pub const MAX_ARCHIVE_MEMBERS: u64 = 400_000;

/// Most arrays of an `npz` file. A model of 1000 layers has 20,000.
pub const MAX_NPZ_MEMBERS: u64 = 100_000;

/// Largest directory of an archive, in bytes: 400,000 members with names of 100 characters.
pub const MAX_DIRECTORY_BYTES: u64 = 64 << 20;

/// Most bytes one deflated archive member may expand to (`npz`).
pub const MAX_INFLATED_BYTES: u64 = 16 << 30;

/// Largest ratio of expanded to stored size of a deflated member; deflate itself cannot pass about 1032.
pub const MAX_INFLATE_RATIO: u64 = 1100;

/// Expanded size, in bytes, above which a deflated member must keep to [`MAX_LARGE_INFLATE_RATIO`].
pub const LARGE_INFLATED_BYTES: u64 = 256 << 20;

/// Largest ratio of expanded to stored size above [`LARGE_INFLATED_BYTES`]. Real tensors of that size stay below it; a
/// small file crafted to fill the memory does not.
pub const MAX_LARGE_INFLATE_RATIO: u64 = 100;

/// Most elements of a tensor with more elements than its storage (expanded with stride 0): otherwise a few bytes of
/// a file could ask for years of work.
pub const MAX_EXPANDED_ELEMENTS: usize = 1 << 34;

/// Largest `dump.json`, `stack.json` or `construct.json`, in bytes.
pub const MAX_INDEX_BYTES: u64 = 64 << 30;

/// Largest `manifest.json`, in bytes.
pub const MAX_MANIFEST_BYTES: u64 = 16 << 20;

/// Most rows (slots) of one part of a native dump. One step of a large model has about 300,000.
pub const MAX_TABLE_ROWS: u64 = 50_000_000;

/// Largest header of a CANN dump file, in bytes. One of a thousand tensors has 100 kB, not counting tensor
/// data.
pub const MAX_CANN_HEADER_BYTES: u64 = 64 << 20;

/// Most tensors, buffers and workspaces of one CANN dump file. An operator on a list of tensors has some thousands.
pub const MAX_CANN_TENSORS: usize = 100_000;

/// Deepest folder below the given one that is searched for CANN dump files; the runtime creates six
/// levels.
pub const MAX_CANN_FOLDERS: usize = 8;

/// Most bytes of one file that the runtime's callback may hand over in chunks. They are written to disk as they
/// arrive.
pub const MAX_CANN_CHUNKED_BYTES: u64 = 1 << 40;

/// Most files that the runtime's callback may have in progress; above it the one idle longest is considered complete.
pub const MAX_CANN_OPEN_FILES: usize = 1024;

/// Most of these files kept open at a time. Linux allows a process 1,024 by default, and the program needs them too.
pub const MAX_CANN_HELD_FILES: usize = 64;

/// Most entries read from one folder.
pub const MAX_FOLDER_ENTRIES: usize = 10_000_000;

/// Most files of one collection that stay open and mapped; the others are reopened for every tensor. Linux allows a
/// process 65,530 maps by default.
pub const MAX_HELD_FILES: usize = 1024;

/// Most members read from a configuration pack. A run of 1000 ranks has 15,000.
pub const MAX_PACK_MEMBERS: u64 = 100_000;

/// Most bytes one member of a configuration pack may expand to. The weights of 100,000 tensors need about 250 MB.
pub const MAX_PACK_MEMBER_BYTES: u64 = 256 << 20;

/// Most bytes all members of a configuration pack together may expand to.
pub const MAX_PACK_BYTES: u64 = 1 << 30;

/// Expanded size, in bytes, above which a member of a configuration pack must keep to
/// [`MAX_PACK_RATIO`].
pub const PACK_RATIO_BYTES: u64 = 1 << 20;

/// Largest ratio of expanded to stored size of a member of a configuration pack. JSON of repeated names reaches 50.
pub const MAX_PACK_RATIO: u64 = 200;

/// Largest imported file of scalars by step, in bytes. Event files also hold images and histograms.
pub const MAX_SCALAR_FILE_BYTES: u64 = 1 << 30;

/// Largest baseline file of a gate, in bytes. One for GPT-2 small takes 100 KB per step.
pub const MAX_BASELINE_BYTES: u64 = 256 << 20;

/// Largest policy file of a gate, in bytes.
pub const MAX_POLICY_BYTES: u64 = 16 << 20;

/// Largest sketch file of a baseline, packed and unpacked, in bytes. One step of a large model has 300,000 slots of 1 KiB.
pub const MAX_SKETCHES_BYTES: u64 = 4 << 30;

/// Longest line of a JSON Lines file with log-probabilities, in bytes. A batch of 64 samples of 32,768 tokens takes 160 MB.
pub const MAX_ROLLOUT_LINE_BYTES: u64 = 512 << 20;

/// Most tokens read of one side of a rollout. They take 17 bytes each.
pub const MAX_ROLLOUT_TOKENS: u64 = 1 << 30;

/// Most experts of tokens read of one side of a rollout, over all layers. They take 2 bytes each.
pub const MAX_ROLLOUT_ROUTES: u64 = 1 << 30;

/// Most rows and columns of one weight, whose hashes are kept. The largest embeddings have a million.
pub const MAX_WEIGHT_LINES: usize = 1 << 26;
