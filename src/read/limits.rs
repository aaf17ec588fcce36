//! Every cap on what a file may ask for.

/// Largest header of a safetensors or npy file, in bytes. The safetensors format itself allows 100 MB.
pub const MAX_HEADER_BYTES: u64 = 100_000_000;

/// Largest pickle program (`data.pkl`) accepted, in bytes. A state dict of 100,000 tensors needs about 20 MB.
pub const MAX_PICKLE_BYTES: u64 = 256 << 20;

/// Most values alive on the stack and memo of the pickle interpreter.
pub const MAX_PICKLE_VALUES: usize = 20_000_000;

/// Deepest nesting of lists and maps in an index or a state dict.
pub const MAX_DEPTH: usize = 200;

/// Most members of an archive.
pub const MAX_ARCHIVE_MEMBERS: u64 = 1_000_000;

/// Most bytes one deflated archive member may expand to (`npz`).
pub const MAX_INFLATED_BYTES: u64 = 64 << 30;

/// Largest ratio of expanded to stored size of a deflated member; deflate itself cannot pass about 1032.
pub const MAX_INFLATE_RATIO: u64 = 1100;

/// Largest `dump.json`, `stack.json` or `construct.json`, in bytes.
pub const MAX_INDEX_BYTES: u64 = 64 << 30;

/// Most entries of one folder that are looked at.
pub const MAX_FOLDER_ENTRIES: usize = 10_000_000;
