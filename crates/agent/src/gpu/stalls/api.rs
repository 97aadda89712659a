//! CUPTI's PC Sampling API: its functions, and calls of them with filled parameters. Nothing here is
//! looked up or called unless the user asks for stalls.

use crate::gpu::loader::{Loader, function};
use crate::gpu::places::CuptiLibrary;
use core::ffi::{CStr, c_char, c_void};
use core::mem::{offset_of, size_of};
use tprof_cupti_sys::functions as f;
use tprof_cupti_sys::*;

/// Most stall reasons of a device. CUPTI has about forty.
pub const MAX_REASONS: usize = 64;
/// Bytes of a reason's name, with its terminating zero: `CUPTI_STALL_REASON_STRING_SIZE`.
const NAME_BYTES: usize = 128;
/// Bytes of the buffer into which a device writes its samples before CUPTI reads them. CUPTI's own
/// default is 512 MiB, which a job that fills its device could miss. CUPTI's threads empty the
/// buffer ten times a second by default.
const DEVICE_BUFFER_BYTES: usize = 64 << 20;

/// The number of bytes up to the end of a structure's last field. CUPTI checks it, and calls it
/// `CUPTI_PCSAMPLING_STRUCT_SIZE`.
macro_rules! size_up_to {
    ($type:ty, $last:ident: $of:ty) => {
        offset_of!($type, $last) + size_of::<$of>()
    };
}

/// The functions of the PC Sampling API.
#[derive(Clone, Copy)]
pub struct PcSampling {
    count_reasons: f::PcSamplingGetNumStallReasons,
    list_reasons: f::PcSamplingGetStallReasons,
    configure: f::PcSamplingSetConfigurationAttribute,
    enable: f::PcSamplingEnable,
    disable: f::PcSamplingDisable,
    data: f::PcSamplingGetData,
    number_cubins: f::RegisterComputeCrcCallback,
}

/// The stall reasons of a device: CUPTI's number and name of each.
pub struct Reasons {
    numbers: [u32; MAX_REASONS],
    names: [[c_char; NAME_BYTES]; MAX_REASONS],
    count: usize,
}

impl Reasons {
    /// The numbers and names.
    pub fn each(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let text = |name: &'_ [c_char; NAME_BYTES]| -> &'_ [u8] {
            // SAFETY: the array has `NAME_BYTES` initialized bytes, and a `c_char` is a byte.
            let bytes = unsafe { core::slice::from_raw_parts(name.as_ptr().cast(), NAME_BYTES) };
            CStr::from_bytes_until_nul(bytes).map_or(&b""[..], CStr::to_bytes)
        };
        self.numbers.iter().copied().zip(self.names.iter().map(text)).take(self.count)
    }
}

impl PcSampling {
    /// Looks the functions up; `None` if the library lacks one.
    pub fn of(loader: &Loader, library: &CuptiLibrary) -> Option<PcSampling> {
        let at = |name: &CStr| loader.symbol(library.handle, name);
        Some(PcSampling {
            count_reasons: function!(
                at(c"cuptiPCSamplingGetNumStallReasons")?,
                f::PcSamplingGetNumStallReasons
            ),
            list_reasons: function!(
                at(c"cuptiPCSamplingGetStallReasons")?,
                f::PcSamplingGetStallReasons
            ),
            configure: function!(
                at(c"cuptiPCSamplingSetConfigurationAttribute")?,
                f::PcSamplingSetConfigurationAttribute
            ),
            enable: function!(at(c"cuptiPCSamplingEnable")?, f::PcSamplingEnable),
            disable: function!(at(c"cuptiPCSamplingDisable")?, f::PcSamplingDisable),
            data: function!(at(c"cuptiPCSamplingGetData")?, f::PcSamplingGetData),
            number_cubins: function!(
                at(c"cuptiRegisterComputeCrcCallback")?,
                f::RegisterComputeCrcCallback
            ),
        })
    }

    /// Makes CUPTI ask `number` for the number of each module that is loaded from now on.
    pub fn number_cubins(&self, number: CUpti_ComputeCrcCallbackFunc) -> CUptiResult {
        // SAFETY: the callback has the type that the header demands, and the driver never unloads
        // the agent.
        unsafe { (self.number_cubins)(number) }
    }

    /// Starts sampling in a context.
    pub fn enable(&self, context: CUcontext) -> CUptiResult {
        let mut parameters = CUpti_PCSamplingEnableParams {
            size: size_up_to!(CUpti_PCSamplingEnableParams, ctx: CUcontext),
            pPriv: core::ptr::null_mut(),
            ctx: context,
        };
        // SAFETY: the parameters are filled as the header demands, and CUPTI only reads them.
        unsafe { (self.enable)(&raw mut parameters) }
    }

    /// Ends sampling in a context. CUPTI writes samples that no answer has had to the buffer that
    /// [`PcSampling::configure`] named.
    pub fn disable(&self, context: CUcontext) -> CUptiResult {
        let mut parameters = CUpti_PCSamplingDisableParams {
            size: size_up_to!(CUpti_PCSamplingDisableParams, ctx: CUcontext),
            pPriv: core::ptr::null_mut(),
            ctx: context,
        };
        // SAFETY: the parameters are filled as the header demands, and CUPTI only reads them.
        unsafe { (self.disable)(&raw mut parameters) }
    }

    /// Returns the stall reasons of a context's device. More than [`MAX_REASONS`] are an error.
    pub fn reasons(&self, context: CUcontext, into: &mut Reasons) -> CUptiResult {
        let mut count = 0usize;
        let mut parameters = CUpti_PCSamplingGetNumStallReasonsParams {
            size: size_up_to!(CUpti_PCSamplingGetNumStallReasonsParams, numStallReasons: *mut usize),
            pPriv: core::ptr::null_mut(),
            ctx: context,
            numStallReasons: &raw mut count,
        };
        // SAFETY: the parameters are filled as the header demands; CUPTI writes one number to the
        // local.
        let result = unsafe { (self.count_reasons)(&raw mut parameters) };
        if result != CUPTI_SUCCESS {
            return result;
        }
        if count > MAX_REASONS {
            return CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT;
        }
        into.count = count;
        let mut names = [core::ptr::null_mut(); MAX_REASONS];
        for (name, text) in names.iter_mut().zip(&mut into.names) {
            *name = text.as_mut_ptr();
        }
        let mut parameters = CUpti_PCSamplingGetStallReasonsParams {
            size: size_up_to!(CUpti_PCSamplingGetStallReasonsParams, stallReasons: *mut *mut c_char),
            pPriv: core::ptr::null_mut(),
            ctx: context,
            numStallReasons: count,
            stallReasonIndex: into.numbers.as_mut_ptr(),
            stallReasons: names.as_mut_ptr(),
        };
        // SAFETY: the parameters are filled as the header demands, with room for `count` numbers,
        // and for as many names of the size that the header defines.
        unsafe { (self.list_reasons)(&raw mut parameters) }
    }

    /// Sets what is sampled in a context, and how: continuously, so that kernels run as without
    /// sampling, each 2 to the power of `period` cycles, and with all reasons. CUPTI keeps `buffer`
    /// until sampling ends.
    pub fn configure(
        &self,
        context: CUcontext,
        period: u32,
        reasons: &mut Reasons,
        buffer: *mut CUpti_PCSamplingData,
    ) -> CUptiResult {
        let attribute =
            |which: CUpti_PCSamplingConfigurationAttributeType| CUpti_PCSamplingConfigurationInfo {
                attributeType: which,
                attributeStatus: CUPTI_SUCCESS,
                attributeData: attribute_data(),
            };
        let mut all = [
            attribute(CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_COLLECTION_MODE),
            attribute(CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_SAMPLING_PERIOD),
            attribute(CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_HARDWARE_BUFFER_SIZE),
            attribute(CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_STALL_REASON),
            attribute(CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_SAMPLING_DATA_BUFFER),
        ];
        let [mode, cycles, device_buffer, which, data] = &mut all;
        mode.attributeData.collectionModeData.collectionMode =
            CUPTI_PC_SAMPLING_COLLECTION_MODE_CONTINUOUS;
        cycles.attributeData.samplingPeriodData.samplingPeriod = period;
        device_buffer.attributeData.hardwareBufferSizeData.hardwareBufferSize = DEVICE_BUFFER_BYTES;
        which.attributeData.stallReasonData.stallReasonCount = reasons.count;
        which.attributeData.stallReasonData.pStallReasonIndex = reasons.numbers.as_mut_ptr();
        data.attributeData.samplingDataBufferData.samplingDataBuffer = buffer.cast();
        let mut parameters = CUpti_PCSamplingConfigurationInfoParams {
            size: size_up_to!(
                CUpti_PCSamplingConfigurationInfoParams,
                pPCSamplingConfigurationInfo: *mut CUpti_PCSamplingConfigurationInfo
            ),
            pPriv: core::ptr::null_mut(),
            ctx: context,
            numAttributes: all.len(),
            pPCSamplingConfigurationInfo: all.as_mut_ptr(),
        };
        // SAFETY: the parameters are filled as the header demands. CUPTI reads the attributes and
        // the reasons now, and the caller leaves the buffer with CUPTI.
        unsafe { (self.configure)(&raw mut parameters) }
    }

    /// Gets samples that CUPTI has read from a context's device, and takes them from CUPTI.
    pub fn data(&self, context: CUcontext, into: *mut CUpti_PCSamplingData) -> CUptiResult {
        let mut parameters = CUpti_PCSamplingGetDataParams {
            size: size_up_to!(CUpti_PCSamplingGetDataParams, pcSamplingData: *mut c_void),
            pPriv: core::ptr::null_mut(),
            ctx: context,
            pcSamplingData: into.cast(),
        };
        // SAFETY: the parameters are filled as the header demands, and the caller passes a prepared
        // answer.
        unsafe { (self.data)(&raw mut parameters) }
    }
}

/// A zeroed value of an attribute.
fn attribute_data() -> CUpti_PCSamplingConfigurationInfo__bindgen_ty_1 {
    let mut data = CUpti_PCSamplingConfigurationInfo__bindgen_ty_1 {
        invalidData: CUpti_PCSamplingConfigurationInfo__bindgen_ty_1__bindgen_ty_1 { data: [0; 3] },
    };
    // The largest member fills the union, so that all bytes are initialized.
    data.invalidData.data = [0; 3];
    data
}

impl Reasons {
    /// Returns room for the reasons of a device.
    pub const fn none() -> Reasons {
        Reasons { numbers: [0; MAX_REASONS], names: [[0; NAME_BYTES]; MAX_REASONS], count: 0 }
    }
}
