//! The functions of the CUDA driver that a launch needs, found by name in the library that torch has loaded.

#![expect(unsafe_code, reason = "the driver has a C interface")]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::ptr;

use crate::private::Library;

/// Return code of a function of the driver: 0 is success.
type Status = c_int;
type Context = *mut c_void;
type Stream = *mut c_void;

/// The driver's functions; see its reference for what each does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Driver {
    init: unsafe extern "C" fn(c_uint) -> Status,
    device: unsafe extern "C" fn(*mut c_int, c_int) -> Status,
    retain: unsafe extern "C" fn(*mut Context, c_int) -> Status,
    push: unsafe extern "C" fn(Context) -> Status,
    pop: unsafe extern "C" fn(*mut Context) -> Status,
    load: unsafe extern "C" fn(*mut *mut c_void, *const c_void) -> Status,
    function: unsafe extern "C" fn(*mut *mut c_void, *mut c_void, *const c_char) -> Status,
    launch: unsafe extern "C" fn(
        *mut c_void,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        Stream,
        *mut *mut c_void,
        *mut *mut c_void,
    ) -> Status,
    synchronize: unsafe extern "C" fn() -> Status,
    fetch: unsafe extern "C" fn(*mut c_void, u64, usize) -> Status,
    name: unsafe extern "C" fn(Status, *mut *const c_char) -> Status,
}

/// A function of the driver failed; the text is the driver's word for why.
pub(super) type Failed = String;

impl Driver {
    /// That of the library at `path`, or of this name, which is loaded already.
    pub(super) fn new(path: &Path) -> Option<Self> {
        let library = Library::loaded(path)?;
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the signatures are those of the driver's reference; names with a version are those that its header gives to programs.
                unsafe { library.function($name) }?
            };
        }
        Some(Self {
            init: function!(c"cuInit"),
            device: function!(c"cuDeviceGet"),
            retain: function!(c"cuDevicePrimaryCtxRetain"),
            push: function!(c"cuCtxPushCurrent_v2"),
            pop: function!(c"cuCtxPopCurrent_v2"),
            load: function!(c"cuModuleLoadData"),
            function: function!(c"cuModuleGetFunction"),
            launch: function!(c"cuLaunchKernel"),
            synchronize: function!(c"cuCtxSynchronize"),
            fetch: function!(c"cuMemcpyDtoH_v2"),
            name: function!(c"cuGetErrorName"),
        })
    }

    fn checked(&self, what: &str, status: Status) -> Result<(), Failed> {
        if status == 0 {
            return Ok(());
        }
        let mut name = ptr::null();
        // SAFETY: the driver sets `name` to a text of its own, or fails.
        let known = unsafe { (self.name)(status, &raw mut name) } == 0 && !name.is_null();
        let word = if known {
            // SAFETY: the driver's texts end with a zero and stay.
            unsafe { CStr::from_ptr(name) }.to_string_lossy()
        } else {
            format!("error {status}").into()
        };
        Err(format!("{what}: {word}"))
    }

    /// The context of the device of this number that torch uses as well.
    pub(super) fn on_device(self, index: i32) -> Result<OnDevice, Failed> {
        let (mut device, mut context) = (0, ptr::null_mut());
        // SAFETY: takes a number.
        self.checked("cuInit", unsafe { (self.init)(0) })?;
        // SAFETY: writes one word.
        self.checked("cuDeviceGet", unsafe { (self.device)(&raw mut device, index) })?;
        // SAFETY: writes one word.
        self.checked("cuDevicePrimaryCtxRetain", unsafe { (self.retain)(&raw mut context, device) })?;
        Ok(OnDevice { driver: self, context: context.expose_provenance() })
    }
}

/// The driver, for one device.
#[derive(Debug, Clone, Copy)]
pub(super) struct OnDevice {
    driver: Driver,
    /// Address of the device's primary context, which is retained for good.
    context: usize,
}

/// A kernel that is loaded; the address that the driver knows it by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Function(usize);

impl OnDevice {
    /// Does `work` while the device is this thread's current one.
    fn within<T>(&self, work: impl FnOnce(&Driver) -> Result<T, Failed>) -> Result<T, Failed> {
        let driver = &self.driver;
        // SAFETY: the context is the driver's own.
        driver.checked("cuCtxPushCurrent", unsafe {
            (driver.push)(ptr::with_exposed_provenance_mut(self.context))
        })?;
        let done = work(driver);
        let mut popped = ptr::null_mut();
        // SAFETY: takes back what was pushed above.
        let back = driver.checked("cuCtxPopCurrent", unsafe { (driver.pop)(&raw mut popped) });
        let done = done?;
        back.map(|()| done)
    }

    /// Loads a compiled module, and the kernels of these names in it.
    pub(super) fn load<const COUNT: usize>(
        &self,
        image: &[u8],
        names: [&str; COUNT],
    ) -> Result<[Function; COUNT], Failed> {
        // The driver takes text up to its end.
        let image: Vec<u8> = image.iter().copied().chain([0]).collect();
        self.within(|driver| {
            let mut module = ptr::null_mut();
            // SAFETY: `image` is a whole module, which the driver copies; it checks what it is.
            driver.checked("cuModuleLoadData", unsafe {
                (driver.load)(&raw mut module, image.as_ptr().cast())
            })?;
            let mut found = [Function(0); COUNT];
            for (function, name) in found.iter_mut().zip(names) {
                let name = CString::new(name).map_err(|error| error.to_string())?;
                let mut address = ptr::null_mut();
                // SAFETY: the module was loaded above and is never unloaded; the name ends with a zero.
                let status = unsafe { (driver.function)(&raw mut address, module, name.as_ptr()) };
                driver.checked("cuModuleGetFunction", status)?;
                *function = Function(address.expose_provenance());
            }
            Ok(found)
        })
    }

    /// Puts a kernel into the queue `stream`, the address of torch's current one.
    ///
    /// # Safety
    /// The kernel takes one argument, an `A`, and all memory that it names stays until the kernel has run.
    pub(super) unsafe fn launch<A>(
        &self,
        function: Function,
        blocks: u32,
        threads: u32,
        stream: usize,
        argument: &A,
    ) -> Result<(), Failed> {
        let mut arguments = [ptr::from_ref(argument).cast_mut().cast::<c_void>()];
        self.within(|driver| {
            // SAFETY: the driver copies the argument before it returns; the rest is the caller's word.
            let status = unsafe {
                (driver.launch)(
                    ptr::with_exposed_provenance_mut(function.0),
                    blocks,
                    1,
                    1,
                    threads,
                    1,
                    1,
                    0,
                    ptr::with_exposed_provenance_mut(stream),
                    arguments.as_mut_ptr(),
                    ptr::null_mut(),
                )
            };
            driver.checked("cuLaunchKernel", status)
        })
    }

    /// Waits until the device has done all its work.
    pub(super) fn synchronize(&self) -> Result<(), Failed> {
        // SAFETY: takes no argument.
        self.within(|driver| driver.checked("cuCtxSynchronize", unsafe { (driver.synchronize)() }))
    }

    /// Copies `bytes` bytes from `address` of the device's memory.
    ///
    /// # Safety
    /// They are memory of the device that nobody writes to meanwhile.
    pub(super) unsafe fn fetch(&self, address: u64, bytes: usize) -> Result<Vec<u8>, Failed> {
        let mut found = vec![0_u8; bytes];
        self.within(|driver| {
            // SAFETY: `found` has room for them; the rest is the caller's word.
            driver
                .checked("cuMemcpyDtoH", unsafe { (driver.fetch)(found.as_mut_ptr().cast(), address, bytes) })
        })?;
        Ok(found)
    }
}
