//! Functions by name: the real `dlsym`, since ours is what everybody else finds.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// An address of code or of something foreign.
pub(crate) type Address = *mut c_void;

/// The real functions; the assembly jumps through them.
pub(crate) static DLSYM: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
pub(crate) static DLVSYM: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

type Lookup = unsafe extern "C" fn(Address, *const c_char) -> Address;

/// Libraries of CANN in which its functions lie, asked in this order.
const LIBRARIES: [&CStr; 6] = [
    c"libascendcl.so",
    c"libnnopbase.so",
    c"libopapi.so",
    c"libacl_op_compiler.so",
    c"libruntime.so",
    c"libascend_dump.so",
];

/// Finds the real functions in the C library; called before anything is looked up.
pub(crate) fn find_real() {
    if DLVSYM.load(Ordering::Acquire).is_null() {
        let found = in_c_library([c"dlsym", c"dlvsym"]);
        DLSYM.store(found[0], Ordering::Release);
        DLVSYM.store(found[1], Ordering::Release);
    }
}

/// The function of this name as `dlsym` finds it through `handle`.
pub(crate) fn lookup(handle: Address, name: &CStr) -> Option<Address> {
    find_real();
    let real = DLSYM.load(Ordering::Acquire);
    if real.is_null() {
        return None;
    }
    // SAFETY: the real `dlsym`, of this signature since there is one.
    let real = unsafe { std::mem::transmute::<Address, Lookup>(real) };
    // SAFETY: `name` ends with a zero; `handle` is the caller's or one of `dlopen`.
    let found = unsafe { real(handle, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// The same of one version, as `dlvsym` finds it.
///
/// # Safety
/// `version` is a text that ends with a zero.
pub(crate) unsafe fn lookup_version(handle: Address, name: &CStr, version: *const c_char) -> Option<Address> {
    type Versioned = unsafe extern "C" fn(Address, *const c_char, *const c_char) -> Address;
    find_real();
    let real = DLVSYM.load(Ordering::Acquire);
    if real.is_null() {
        return None;
    }
    // SAFETY: the real `dlvsym`, of this signature since there is one.
    let real = unsafe { std::mem::transmute::<Address, Versioned>(real) };
    // SAFETY: both are texts, as the caller vouches; `handle` is the caller's.
    let found = unsafe { real(handle, name.as_ptr(), version) };
    (!found.is_null()).then_some(found)
}

/// A function of CANN, behind anything of ours: from the libraries that come after, or from CANN's own if they are loaded.
pub(crate) fn of_cann(name: &CStr) -> Option<Address> {
    lookup(libc::RTLD_NEXT, name)
        .or_else(|| LIBRARIES.into_iter().find_map(|library| in_library(library, name)))
}

/// A function of a library, if that is loaded.
pub(crate) fn in_library(library: &CStr, name: &CStr) -> Option<Address> {
    // SAFETY: a name that ends with a zero; nothing is loaded that is not there.
    let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() { None } else { lookup(handle, name) }
}

/// Functions of the C library, read from its own table of symbols: nothing that could be asked for them leads past ours.
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
    // SAFETY: `dl_iterate_phdr` hands over a description that is valid during the call.
    let info = unsafe { &*info };
    // SAFETY: what `in_c_library` gave to it.
    let search = unsafe { &mut *search.cast::<Search<'_>>() };
    if info.dlpi_name.is_null() {
        return 0;
    }
    // SAFETY: the path of the library, a text that ends with a zero.
    let path = unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes();
    let file = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    // Before version 2.34 the functions are in a library of their own.
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

/// What the dynamic section of a loaded object says under each of `tags`; 0 where it says nothing. `None` where it has no such section.
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

/// Program headers of a loaded object.
///
/// # Safety
/// As for [`dynamic`].
pub(crate) unsafe fn headers(info: &libc::dl_phdr_info) -> &[libc::Elf64_Phdr] {
    // SAFETY: so many headers lie there.
    unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) }
}

/// The address that an entry of a dynamic section means: the loader has put addresses in place of offsets, but not on every architecture.
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

    /// The function of this name, by the hash table that GNU's linker makes.
    ///
    /// # Safety
    /// The library stays loaded.
    unsafe fn find(&self, name: &CStr) -> Option<Address> {
        let wanted = name
            .to_bytes()
            .iter()
            .fold(5381_u32, |hash, &byte| hash.wrapping_mul(33).wrapping_add(byte.into()));
        // SAFETY: the table begins with four numbers, which say how long its parts are.
        let [buckets, first, blooms, _] = unsafe { self.hash.cast::<[u32; 4]>().read() };
        let bucket_list = self.hash.wrapping_add(4 + 2 * blooms as usize);
        let chain = bucket_list.wrapping_add(buckets as usize);
        if buckets == 0 {
            return None;
        }
        // SAFETY: so many buckets lie there.
        let mut index = unsafe { bucket_list.wrapping_add((wanted % buckets) as usize).read() };
        if index < first {
            return None;
        }
        loop {
            // SAFETY: a chain ends with an odd hash.
            let hash = unsafe { chain.wrapping_add((index - first) as usize).read() };
            // SAFETY: each hash of the chain has its symbol.
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
