//! Programs and libraries that are linked to CANN's libraries instead of looking functions up by name.
//!
//! The loader keeps the addresses of the functions that an object is linked to in a table of that object. Entries of
//! aclnn functions are replaced with stubs: only data is written, no code. Functions intercepted by name need none of
//! this, since this library comes first in the search order. CANN's own libraries are left alone: calls from one
//! operator to another are not launches of the program.

use std::collections::HashSet;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::stubs;
use crate::symbols::{self, Address, DT_STRTAB, DT_SYMTAB, address, dynamic, headers};

const DT_PLTRELSZ: i64 = 2;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_JMPREL: i64 = 23;
const PT_GNU_RELRO: u32 = 0x6474_e552;
const STB_WEAK: u8 = 2;

/// Kinds of entries that hold the address of a function: in the procedure linkage table, in the global offset table,
/// and in data itself.
#[cfg(target_arch = "x86_64")]
const KINDS: [u32; 3] = [7, 6, 1];
#[cfg(target_arch = "aarch64")]
const KINDS: [u32; 3] = [1026, 1025, 257];

/// Prefixes of the names of CANN's own libraries.
const CANN: [&str; 9] = [
    "libopapi",
    "libaclnn",
    "libascendcl",
    "libnnopbase",
    "libcust_opapi",
    "libge",
    "libgraph",
    "libhccl",
    "libacl_",
];

#[repr(C)]
#[derive(Clone, Copy)]
struct Relocation {
    offset: u64,
    info: u64,
    addend: i64,
}

/// An entry to be replaced.
#[derive(Debug)]
struct Entry {
    name: Box<str>,
    place: usize,
    /// True if the loader may not have filled it in yet: it does so at the first call.
    lazy: bool,
    /// True if the memory is already read-only.
    sealed: bool,
}

/// Inspected objects: their addresses and names.
type Known = HashSet<(usize, Box<[u8]>)>;

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

/// Inspects objects loaded since the last call.
pub(crate) fn look() {
    /// Number of objects ever loaded at the last call.
    static LOADED: AtomicU64 = AtomicU64::new(0);

    let loaded = ever_loaded();
    if LOADED.swap(loaded, Ordering::AcqRel) == loaded {
        return;
    }
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut found = LinkScan { known: known.get_or_insert_default(), entries: Vec::new(), unready: false };
    // SAFETY: the callback has the signature that is called, and `found` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut found).cast()) };
    if found.unready {
        LOADED.store(0, Ordering::Release);
    }
    for each in found.entries {
        each.replace();
    }
}

/// Returns the number of objects that the loader has ever loaded.
fn ever_loaded() -> u64 {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, count: *mut c_void) -> c_int {
        // SAFETY: `dl_iterate_phdr` passes a description, and `count` is the caller's.
        unsafe { *count.cast::<u64>() = (*info).dlpi_adds };
        1
    }
    let mut count = 0_u64;
    // SAFETY: the callback has the signature that is called, and `count` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut count).cast()) };
    count
}

struct LinkScan<'a> {
    known: &'a mut Known,
    entries: Vec<Entry>,
    /// True if another thread is currently loading an object.
    unready: bool,
}

unsafe extern "C" fn collect(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
    // SAFETY: `dl_iterate_phdr` passes a description that is valid during the call, and `found` is that of `look`.
    let (info, found) = unsafe { (&*info, &mut *found.cast::<LinkScan<'_>>()) };
    let path: &[u8] = if info.dlpi_name.is_null() {
        &[]
    } else {
        // SAFETY: the path of the object, a zero-terminated text.
        unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes()
    };
    let base = usize::try_from(info.dlpi_addr).unwrap_or(0);
    if found.known.insert((base, path.into())) {
        let file = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        let own = is_within(info, base, collect as *const () as usize);
        if !own && !CANN.iter().any(|start| file.starts_with(start.as_bytes())) {
            let before = found.entries.len();
            // SAFETY: the object stays loaded during the call, and the loader has checked its tables.
            let ready = unsafe { entries(info, base, &mut found.entries) };
            if ready == Some(false) {
                // The loader would add to a value written now.
                found.entries.truncate(before);
                found.known.remove(&(base, path.into()));
                found.unready = true;
            }
        }
    }
    0
}

/// Returns true if an address lies in a loaded object.
fn is_within(info: &libc::dl_phdr_info, base: usize, address: usize) -> bool {
    // SAFETY: a description that is valid during the call.
    unsafe { headers(info) }.iter().filter(|header| header.p_type == libc::PT_LOAD).any(|header| {
        let start = base.wrapping_add(usize::try_from(header.p_vaddr).unwrap_or(0));
        (start..start.wrapping_add(usize::try_from(header.p_memsz).unwrap_or(0))).contains(&address)
    })
}

/// Finds the entries of an object that hold addresses of aclnn functions of others. `Some(false)`: the loader has not
/// filled them in yet.
///
/// # Safety
/// The object stays loaded.
unsafe fn entries(info: &libc::dl_phdr_info, base: usize, found: &mut Vec<Entry>) -> Option<bool> {
    let tags = [DT_SYMTAB, DT_STRTAB, DT_RELA, DT_RELASZ, DT_JMPREL, DT_PLTRELSZ];
    // SAFETY: as the caller vouches.
    let [symbols, names, data, data_bytes, calls, calls_bytes] = unsafe { dynamic(info, tags) }?;
    let symbols = address(base, symbols) as *const libc::Elf64_Sym;
    let names = address(base, names) as *const c_char;
    // SAFETY: as the caller vouches.
    let sealed = unsafe { headers(info) }.iter().find(|header| header.p_type == PT_GNU_RELRO).map(|header| {
        let start = base + usize::try_from(header.p_vaddr).unwrap_or(0);
        // The loader leaves a page that it would have to split writable.
        start..(start + usize::try_from(header.p_memsz).unwrap_or(0)) / page() * page()
    });
    for (table, bytes) in [(data, data_bytes), (calls, calls_bytes)] {
        if table == 0 {
            continue;
        }
        let table = address(base, table) as *const Relocation;
        for at in 0..bytes / size_of::<Relocation>() {
            // SAFETY: this many entries lie there.
            let Relocation { offset, info: what, addend } = unsafe { table.add(at).read() };
            #[expect(clippy::cast_possible_truncation, reason = "the lower half is the kind")]
            let kind = what as u32;
            let symbol = usize::try_from(what >> 32).ok()?;
            if symbol == 0 || addend != 0 || !KINDS.contains(&kind) {
                continue;
            }
            // SAFETY: the number of a symbol of this object.
            let symbol = unsafe { &*symbols.add(symbol) };
            // SAFETY: the name of a symbol lies among the names, and is zero-terminated.
            let name = unsafe { CStr::from_ptr(names.add(symbol.st_name as usize)) };
            if symbol.st_shndx != 0 || !name.to_bytes().starts_with(b"aclnn") {
                continue;
            }
            let (Ok(name), Ok(offset)) = (name.to_str(), usize::try_from(offset)) else { continue };
            let place = base + offset;
            // SAFETY: an address that the loader writes to.
            let now = unsafe { (place as *const usize).read_volatile() };
            let is_weak = symbol.st_info >> 4 == STB_WEAK;
            if now == 0 && is_weak {
                // The program does without it.
                continue;
            }
            if now == 0 || base != 0 && is_within(info, 0, now) {
                return Some(false);
            }
            found.push(Entry {
                name: name.into(),
                place,
                lazy: is_within(info, base, now),
                sealed: sealed.as_ref().is_some_and(|sealed| sealed.contains(&place)),
            });
        }
    }
    Some(true)
}

/// Returns the page size in bytes.
fn page() -> usize {
    // SAFETY: no preconditions.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

impl Entry {
    /// Replaces the function's address with a stub.
    fn replace(&self) {
        // SAFETY: an entry of an object that was loaded a moment ago; nobody unloads an object that is about to call
        // it.
        let entry = unsafe { &*(self.place as *const AtomicUsize) };
        let now = entry.load(Ordering::Acquire) as Address;
        let real = if self.lazy {
            let Ok(name) = std::ffi::CString::new(&*self.name) else { return };
            let Some(found) = symbols::lookup(libc::RTLD_DEFAULT, &name).or_else(|| symbols::of_cann(&name))
            else {
                return;
            };
            found
        } else {
            now
        };
        if stubs::is_stub(real) {
            return;
        }
        let stub = stubs::stand_in_front(&self.name, real);
        if stub == real {
            return;
        }
        if !self.sealed {
            entry.store(stub.addr(), Ordering::Release);
            return;
        }
        let page = page();
        let start = (self.place / page * page) as *mut c_void;
        // SAFETY: the page of a table that the loader made read-only after writing to it.
        if unsafe { libc::mprotect(start, page, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
            crate::notes::count(crate::notes::Count::WithoutStub, &self.name);
            return;
        }
        entry.store(stub.addr(), Ordering::Release);
        // SAFETY: as above.
        unsafe { libc::mprotect(start, page, libc::PROT_READ) };
    }
}
