//! Memory at arbitrary addresses: the stack of the calling thread, and the memory that its words may point to.

use std::cell::Cell;
use std::ffi::c_void;

/// The stack of a thread: from the lowest address to the first one above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stack {
    low: usize,
    high: usize,
}

impl Stack {
    /// Returns the stack that the system gave to this thread. A coroutine or a signal may run on another.
    pub(crate) fn of_thread() -> Self {
        thread_local!(static STACK: Cell<Stack> = const { Cell::new(Stack { low: 0, high: 0 }) });
        if STACK.get().high == 0 {
            STACK.set(Self::ask());
        }
        STACK.get()
    }

    fn ask() -> Self {
        // An empty range if the system does not tell.
        let nowhere = Self { low: 1, high: 1 };
        // SAFETY: a plain structure of numbers.
        let mut attributes = unsafe { std::mem::zeroed::<libc::pthread_attr_t>() };
        // SAFETY: the calling thread exists; the attributes are released below.
        if unsafe { libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes) } != 0 {
            return nowhere;
        }
        let (mut low, mut size) = (std::ptr::null_mut(), 0);
        // SAFETY: the attributes were filled in above.
        let told = unsafe { libc::pthread_attr_getstack(&raw const attributes, &raw mut low, &raw mut size) };
        // SAFETY: as above, and they are not used again.
        unsafe { libc::pthread_attr_destroy(&raw mut attributes) };
        if told == 0 { Self { low: low.addr(), high: low.addr() + size } } else { nowhere }
    }

    /// Returns true if this many bytes from `address` on lie in it.
    pub(crate) fn holds(&self, address: usize, bytes: usize) -> bool {
        address >= self.low && address.checked_add(bytes).is_some_and(|end| end <= self.high)
    }

    /// Returns the number of whole words from `address` to its upper end.
    pub(crate) const fn words_above(&self, address: usize) -> usize {
        self.high.saturating_sub(address) / 8
    }
}

/// Copies as many words as can be read from `address` on; fewer than `words.len()` if memory ends.
pub(crate) fn read(address: usize, words: &mut [u64]) -> usize {
    let bytes = size_of_val(words);
    let here = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: bytes };
    // Each page separately: a transfer stops at an unreadable part, and reports nothing about the rest of that part.
    let boundary = (address | 4095) + 1;
    let first = bytes.min(boundary.saturating_sub(address));
    let there = [
        libc::iovec { iov_base: address as *mut c_void, iov_len: first },
        libc::iovec { iov_base: boundary as *mut c_void, iov_len: bytes - first },
    ];
    let parts = if bytes > first { 2 } else { 1 };
    // SAFETY: it writes only to `words`, and reports unreadable addresses as an error.
    let read =
        unsafe { libc::process_vm_readv(libc::getpid(), &raw const here, 1, there.as_ptr(), parts, 0) };
    match usize::try_from(read) {
        Ok(read) => read / 8,
        // A container may forbid the call, and emulators may not have it.
        Err(_) => read_through_file(address, words),
    }
}

/// Reads through the file of this process's memory. Opened each time: a file opened before a fork is the parent's.
fn read_through_file(address: usize, words: &mut [u64]) -> usize {
    use std::os::unix::fs::FileExt as _;

    let Ok(file) = std::fs::File::open("/proc/self/mem") else { return 0 };
    let mut whole = 0;
    for word in words {
        let mut bytes = [0; 8];
        if file.read_exact_at(&mut bytes, (address + whole * 8) as u64).is_err() {
            break;
        }
        *word = u64::from_ne_bytes(bytes);
        whole += 1;
    }
    whole
}

/// Returns the word at `address`, if it can be read.
pub(crate) fn word(stack: Stack, address: u64) -> Option<u64> {
    let address = usize::try_from(address).ok()?;
    if address == 0 || address % 8 != 0 {
        return None;
    }
    if stack.holds(address, 8) {
        // SAFETY: it lies in the stack of this thread, which is mapped where it was used.
        return Some(unsafe { (address as *const u64).read_volatile() });
    }
    let mut word = [0];
    (read(address, &mut word) == 1).then_some(word[0])
}

/// Returns a text of at most `most` bytes at `address`, if it can be read and is valid.
pub(crate) fn text(address: u64, most: usize) -> Option<String> {
    let address = usize::try_from(address).ok()?;
    if address < 4096 {
        return None;
    }
    let mut words = vec![0; most.div_ceil(8)];
    let count = read(address, &mut words);
    let bytes: Vec<u8> = words.iter().take(count).flat_map(|word| word.to_le_bytes()).collect();
    let end = bytes.iter().position(|&byte| byte == 0)?;
    std::str::from_utf8(bytes.get(..end)?).ok().map(String::from)
}

/// Arguments as they were passed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Words<'a> {
    /// Integers and pointers, from registers and then from the stack.
    pub(crate) integers: &'a [u64],
    /// Lower halves of the floating-point registers.
    pub(crate) reals: &'a [u64],
}
