//! Function lookup by name: the real `dlsym`, since everyone else finds ours.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Address of code or of something foreign.
pub(crate) type Address = *mut c_void;

/// The real functions; the assembly code jumps through them.
pub(crate) static DLSYM: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
pub(crate) static DLVSYM: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

type Lookup = unsafe extern "C" fn(Address, *const c_char) -> Address;

/// CANN libraries that contain its functions, searched in this order.
const LIBRARIES: [&CStr; 6] = [
    c"libascendcl.so",
    c"libnnopbase.so",
    c"libopapi.so",
    c"libacl_op_compiler.so",
    c"libruntime.so",
    c"libascend_dump.so",
];

/// Finds the real functions in the C library; called before any lookup.
pub(crate) fn find_real() {
    if DLVSYM.load(Ordering::Acquire).is_null() {
        let found = in_c_library([c"dlsym", c"dlvsym"]);
        DLSYM.store(found[0], Ordering::Release);
        DLVSYM.store(found[1], Ordering::Release);
    }
}

/// Returns the function that `dlsym` finds by this name through `handle`.
pub(crate) fn lookup(handle: Address, name: &CStr) -> Option<Address> {
    find_real();
    let real = DLSYM.load(Ordering::Acquire);
    if real.is_null() {
        return None;
    }
    // SAFETY: the real `dlsym`, which has always had this signature.
    let real = unsafe { std::mem::transmute::<Address, Lookup>(real) };
    // SAFETY: `name` is zero-terminated; `handle` is the caller's or comes from `dlopen`.
    let found = unsafe { real(handle, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// Returns the function of a given version, as `dlvsym` finds it.
///
/// # Safety
/// `version` is a zero-terminated text.
pub(crate) unsafe fn lookup_version(handle: Address, name: &CStr, version: *const c_char) -> Option<Address> {
    type Versioned = unsafe extern "C" fn(Address, *const c_char, *const c_char) -> Address;
    find_real();
    let real = DLVSYM.load(Ordering::Acquire);
    if real.is_null() {
        return None;
    }
    // SAFETY: the real `dlvsym`, which has always had this signature.
    let real = unsafe { std::mem::transmute::<Address, Versioned>(real) };
    // SAFETY: both are texts, as the caller vouches; `handle` is the caller's.
    let found = unsafe { real(handle, name.as_ptr(), version) };
    (!found.is_null()).then_some(found)
}

/// Returns a CANN function, skipping ours: from the libraries that come after this one, or from CANN's own if they
/// are loaded.
pub(crate) fn of_cann(name: &CStr) -> Option<Address> {
    lookup(libc::RTLD_NEXT, name)
        .or_else(|| LIBRARIES.into_iter().find_map(|library| in_library(library, name)))
}

/// Returns a function of a library, if that is loaded.
pub(crate) fn in_library(library: &CStr, name: &CStr) -> Option<Address> {
    // SAFETY: a zero-terminated name; only libraries already loaded are opened.
    let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() { None } else { lookup(handle, name) }
}

/// Returns functions of the C library, read from its own symbol table: any lookup by name would find ours.
fn in_c_library(names: [&CStr; 2]) -> [Address; 2] {
    let mut search = Search { names, found: [std::ptr::null_mut(); 2] };
    // SAFETY: the callback has the signature that is called, and `search` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look_into), (&raw mut search).cast()) };
    search.found
}

struct Search<'a> {
    names: [&'a CStr; 2],
    found: [Address; 2],
}

unsafe extern "C" fn look_into(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: `dl_iterate_phdr` passes a description that is valid during the call.
    let info = unsafe { &*info };
    // SAFETY: the pointer passed by `in_c_library`.
    let search = unsafe { &mut *search.cast::<Search<'_>>() };
    if info.dlpi_name.is_null() {
        return 0;
    }
    // SAFETY: the path of the library, a zero-terminated text.
    let path = unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes();
    let file = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    // Before version 2.34 the functions are in a separate library.
    if !file.starts_with(b"libc.so") && !file.starts_with(b"libc-2") && !file.starts_with(b"libdl") {
        return 0;
    }
    // SAFETY: the library stays loaded, and the loader has checked its tables.
    if let Some(table) = unsafe { Table::of(info) } {
        for (name, found) in search.names.into_iter().zip(&mut search.found) {
            if found.is_null() {
                // SAFETY: as above.
                *found = unsafe { table.find(name) }.unwrap_or(std::ptr::null_mut());
            }
        }
    }
    c_int::from(search.found.iter().all(|found| !found.is_null()))
}

/// The dynamic symbols of a loaded library.
struct Table {
    base: usize,
    symbols: *const libc::Elf64_Sym,
    names: *const c_char,
    hash: *const u32,
}

const DT_NULL: i64 = 0;
pub(crate) const DT_STRTAB: i64 = 5;
pub(crate) const DT_SYMTAB: i64 = 6;
const DT_GNU_HASH: i64 = 0x6fff_fef5;

#[repr(C)]
struct Dynamic {
    tag: i64,
    value: usize,
}

/// Returns the values of `tags` in the dynamic section of a loaded object; 0 for a missing tag. `None` if it has no
/// such section.
///
/// # Safety
/// `info` describes an object that stays loaded meanwhile.
pub(crate) unsafe fn dynamic<const N: usize>(
    info: &libc::dl_phdr_info,
    tags: [i64; N],
) -> Option<[usize; N]> {
    // SAFETY: as the caller vouches.
    let dynamic = unsafe { headers(info) }.iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
    let base = usize::try_from(info.dlpi_addr).ok()?;
    let mut entry = (base + usize::try_from(dynamic.p_vaddr).ok()?) as *const Dynamic;
    let mut found = [0; N];
    loop {
        // SAFETY: the section ends with an entry of tag 0.
        let Dynamic { tag, value } = unsafe { entry.read() };
        if tag == DT_NULL {
            return Some(found);
        }
        if let Some(place) = tags.iter().position(|&wanted| wanted == tag) {
            found[place] = value;
        }
        entry = entry.wrapping_add(1);
    }
}

/// Returns the program headers of a loaded object.
///
/// # Safety
/// The same as for [`dynamic`].
pub(crate) unsafe fn headers(info: &libc::dl_phdr_info) -> &[libc::Elf64_Phdr] {
    // SAFETY: this many headers lie there.
    unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) }
}

/// Returns the address meant by an entry of a dynamic section: the loader has replaced offsets with addresses, but
/// not on every architecture.
pub(crate) const fn address(base: usize, value: usize) -> usize {
    if value < base { base + value } else { value }
}

impl Table {
    /// # Safety
    /// `info` describes a library that stays loaded.
    unsafe fn of(info: &libc::dl_phdr_info) -> Option<Self> {
        let base = usize::try_from(info.dlpi_addr).ok()?;
        // SAFETY: as the caller vouches.
        let [symbols, names, hash] = unsafe { dynamic(info, [DT_SYMTAB, DT_STRTAB, DT_GNU_HASH]) }?;
        (symbols != 0 && names != 0 && hash != 0).then_some(Self {
            base,
            symbols: address(base, symbols) as *const _,
            names: address(base, names) as *const _,
            hash: address(base, hash) as *const _,
        })
    }

    /// Returns the function of this name, found in the GNU hash table.
    ///
    /// # Safety
    /// The library stays loaded.
    unsafe fn find(&self, name: &CStr) -> Option<Address> {
        let wanted = name
            .to_bytes()
            .iter()
            .fold(5381_u32, |hash, &byte| hash.wrapping_mul(33).wrapping_add(byte.into()));
        // SAFETY: the table begins with four numbers, which give the lengths of its parts.
        let [buckets, first, blooms, _] = unsafe { self.hash.cast::<[u32; 4]>().read() };
        let bucket_list = self.hash.wrapping_add(4 + 2 * blooms as usize);
        let chain = bucket_list.wrapping_add(buckets as usize);
        if buckets == 0 {
            return None;
        }
        // SAFETY: this many buckets lie there.
        let mut index = unsafe { bucket_list.wrapping_add((wanted % buckets) as usize).read() };
        if index < first {
            return None;
        }
        loop {
            // SAFETY: a chain ends with an odd hash.
            let hash = unsafe { chain.wrapping_add((index - first) as usize).read() };
            // SAFETY: each hash of the chain has a symbol.
            let symbol = unsafe { &*self.symbols.wrapping_add(index as usize) };
            // SAFETY: the name of a symbol lies among the names.
            let same = hash | 1 == wanted | 1
                && unsafe { CStr::from_ptr(self.names.wrapping_add(symbol.st_name as usize)) } == name;
            if same && symbol.st_shndx != 0 {
                return Some((self.base + usize::try_from(symbol.st_value).ok()?) as Address);
            }
            if hash & 1 == 1 {
                return None;
            }
            index += 1;
        }
    }
}
