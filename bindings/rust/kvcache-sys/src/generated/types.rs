// Generated from include/kvcache.h by scripts/generate_rust.sh.

pub const DLPACK_MAJOR_VERSION: u32 = 1;
pub const DLPACK_MINOR_VERSION: u32 = 3;
pub const DLPACK_FLAG_BITMASK_READ_ONLY: u32 = 1;
pub const DLPACK_FLAG_BITMASK_IS_COPIED: u32 = 2;
pub const DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED: u32 = 4;
pub const KVC_VERSION_MAJOR: u32 = 0;
pub const KVC_VERSION_MINOR: u32 = 1;
pub const KVC_VERSION_PATCH: u32 = 0;
pub const KVC_ABI_VERSION: u32 = 1;
#[doc = " \\brief The DLPack version.\n\n A change in major version indicates that we have changed the\n data layout of the ABI - DLManagedTensorVersioned.\n\n A change in minor version indicates that we have added new\n code, such as a new device type, but the ABI is kept the same.\n\n If an obtained DLPack tensor has a major version that disagrees\n with the version number specified in this header file\n (i.e. major != DLPACK_MAJOR_VERSION), the consumer must call the deleter\n (and it is safe to do so). It is not safe to access any other fields\n as the memory layout will have changed.\n\n In the case of a minor version mismatch, the tensor can be safely used as\n long as the consumer knows how to interpret all fields. Minor version\n updates indicate the addition of enumeration values."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct DLPackVersion {
    #[doc = " \\brief DLPack major version."]
    pub major: u32,
    #[doc = " \\brief DLPack minor version."]
    pub minor: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of DLPackVersion"][::core::mem::size_of::<DLPackVersion>() - 8usize];
    ["Alignment of DLPackVersion"][::core::mem::align_of::<DLPackVersion>() - 4usize];
    ["Offset of field: DLPackVersion::major"][::core::mem::offset_of!(DLPackVersion, major) - 0usize];
    ["Offset of field: DLPackVersion::minor"][::core::mem::offset_of!(DLPackVersion, minor) - 4usize];
};
#[doc = " \\brief CPU device"]
pub const kDLCPU: DLDeviceType = 1;
#[doc = " \\brief CUDA GPU device"]
pub const kDLCUDA: DLDeviceType = 2;
#[doc = " \\brief Pinned CUDA CPU memory by cudaMallocHost"]
pub const kDLCUDAHost: DLDeviceType = 3;
#[doc = " \\brief OpenCL devices."]
pub const kDLOpenCL: DLDeviceType = 4;
#[doc = " \\brief Vulkan buffer for next generation graphics."]
pub const kDLVulkan: DLDeviceType = 7;
#[doc = " \\brief Metal for Apple GPU."]
pub const kDLMetal: DLDeviceType = 8;
#[doc = " \\brief Verilog simulator buffer"]
pub const kDLVPI: DLDeviceType = 9;
#[doc = " \\brief ROCm GPUs for AMD GPUs"]
pub const kDLROCM: DLDeviceType = 10;
#[doc = " \\brief Pinned ROCm CPU memory allocated by hipMallocHost"]
pub const kDLROCMHost: DLDeviceType = 11;
#[doc = " \\brief Reserved extension device type,\n used for quickly test extension device\n The semantics can differ depending on the implementation."]
pub const kDLExtDev: DLDeviceType = 12;
#[doc = " \\brief CUDA managed/unified memory allocated by cudaMallocManaged"]
pub const kDLCUDAManaged: DLDeviceType = 13;
#[doc = " \\brief Unified shared memory allocated on a oneAPI non-partititioned\n device. Call to oneAPI runtime is required to determine the device\n type, the USM allocation type and the sycl context it is bound to.\n"]
pub const kDLOneAPI: DLDeviceType = 14;
#[doc = " \\brief GPU support for next generation WebGPU standard."]
pub const kDLWebGPU: DLDeviceType = 15;
#[doc = " \\brief Qualcomm Hexagon DSP"]
pub const kDLHexagon: DLDeviceType = 16;
#[doc = " \\brief Microsoft MAIA devices"]
pub const kDLMAIA: DLDeviceType = 17;
#[doc = " \\brief AWS Trainium"]
pub const kDLTrn: DLDeviceType = 18;
pub type DLDeviceType = ::core::ffi::c_uint;
#[doc = " \\brief A Device for Tensor and operator."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct DLDevice {
    #[doc = " \\brief The device type used in the device."]
    pub device_type: DLDeviceType,
    #[doc = " \\brief The device index.\n For vanilla CPU memory, pinned memory, or managed memory, this is set to 0."]
    pub device_id: i32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of DLDevice"][::core::mem::size_of::<DLDevice>() - 8usize];
    ["Alignment of DLDevice"][::core::mem::align_of::<DLDevice>() - 4usize];
    ["Offset of field: DLDevice::device_type"][::core::mem::offset_of!(DLDevice, device_type) - 0usize];
    ["Offset of field: DLDevice::device_id"][::core::mem::offset_of!(DLDevice, device_id) - 4usize];
};
#[doc = " \\brief signed integer"]
pub const kDLInt: DLDataTypeCode = 0;
#[doc = " \\brief unsigned integer"]
pub const kDLUInt: DLDataTypeCode = 1;
#[doc = " \\brief IEEE floating point"]
pub const kDLFloat: DLDataTypeCode = 2;
#[doc = " \\brief Opaque handle type, reserved for testing purposes.\n Frameworks need to agree on the handle data type for the exchange to be well-defined."]
pub const kDLOpaqueHandle: DLDataTypeCode = 3;
#[doc = " \\brief bfloat16"]
pub const kDLBfloat: DLDataTypeCode = 4;
#[doc = " \\brief complex number\n (C/C++/Python layout: compact struct per complex number)"]
pub const kDLComplex: DLDataTypeCode = 5;
#[doc = " \\brief boolean"]
pub const kDLBool: DLDataTypeCode = 6;
#[doc = " \\brief FP8 data types"]
pub const kDLFloat8_e3m4: DLDataTypeCode = 7;
#[doc = " \\brief FP8 data types"]
pub const kDLFloat8_e4m3: DLDataTypeCode = 8;
#[doc = " \\brief FP8 data types"]
pub const kDLFloat8_e4m3b11fnuz: DLDataTypeCode = 9;
#[doc = " \\brief FP8 data types"]
pub const kDLFloat8_e4m3fn: DLDataTypeCode = 10;
#[doc = " \\brief FP8 data types"]
pub const kDLFloat8_e4m3fnuz: DLDataTypeCode = 11;
#[doc = " \\brief FP8 data types"]
pub const kDLFloat8_e5m2: DLDataTypeCode = 12;
#[doc = " \\brief FP8 data types"]
pub const kDLFloat8_e5m2fnuz: DLDataTypeCode = 13;
#[doc = " \\brief FP8 data types"]
pub const kDLFloat8_e8m0fnu: DLDataTypeCode = 14;
#[doc = " \\brief FP6 data types\n Setting bits != 6 is currently unspecified, and the producer must ensure it is set\n while the consumer must stop importing if the value is unexpected."]
pub const kDLFloat6_e2m3fn: DLDataTypeCode = 15;
#[doc = " \\brief FP6 data types\n Setting bits != 6 is currently unspecified, and the producer must ensure it is set\n while the consumer must stop importing if the value is unexpected."]
pub const kDLFloat6_e3m2fn: DLDataTypeCode = 16;
#[doc = " \\brief FP4 data types\n Setting bits != 4 is currently unspecified, and the producer must ensure it is set\n while the consumer must stop importing if the value is unexpected."]
pub const kDLFloat4_e2m1fn: DLDataTypeCode = 17;
#[doc = " \\brief The type code options DLDataType."]
pub type DLDataTypeCode = ::core::ffi::c_uint;
#[doc = " \\brief The data type the tensor can hold. The data type is assumed to follow the\n native endian-ness. An explicit error message should be raised when attempting to\n export an array with non-native endianness\n\n  Examples\n   - float: type_code = 2, bits = 32, lanes = 1\n   - float4(vectorized 4 float): type_code = 2, bits = 32, lanes = 4\n   - int8: type_code = 0, bits = 8, lanes = 1\n   - std::complex<float>: type_code = 5, bits = 64, lanes = 1\n   - bool: type_code = 6, bits = 8, lanes = 1 (as per common array library convention, the underlying storage size of bool is 8 bits)\n   - float8_e4m3: type_code = 8, bits = 8, lanes = 1 (packed in memory)\n   - float6_e3m2fn: type_code = 16, bits = 6, lanes = 1 (packed in memory)\n   - float4_e2m1fn: type_code = 17, bits = 4, lanes = 1 (packed in memory)\n\n  When a sub-byte type is packed, DLPack requires the data to be in little bit-endian, i.e.,\n  for a packed data set D ((D >> (i * bits)) && bit_mask) stores the i-th element."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct DLDataType {
    #[doc = " \\brief Type code of base types.\n We keep it uint8_t instead of DLDataTypeCode for minimal memory\n footprint, but the value should be one of DLDataTypeCode enum values."]
    pub code: u8,
    #[doc = " \\brief Number of bits, common choices are 8, 16, 32."]
    pub bits: u8,
    #[doc = " \\brief Number of lanes in the type, used for vector types."]
    pub lanes: u16,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of DLDataType"][::core::mem::size_of::<DLDataType>() - 4usize];
    ["Alignment of DLDataType"][::core::mem::align_of::<DLDataType>() - 2usize];
    ["Offset of field: DLDataType::code"][::core::mem::offset_of!(DLDataType, code) - 0usize];
    ["Offset of field: DLDataType::bits"][::core::mem::offset_of!(DLDataType, bits) - 1usize];
    ["Offset of field: DLDataType::lanes"][::core::mem::offset_of!(DLDataType, lanes) - 2usize];
};
#[doc = " \\brief Plain C Tensor object, does not manage memory."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct DLTensor {
    #[doc = " \\brief The data pointer points to the allocated data. This will be CUDA\n device pointer or cl_mem handle in OpenCL. It may be opaque on some device\n types. This pointer is always aligned to 256 bytes as in CUDA. The\n `byte_offset` field should be used to point to the beginning of the data.\n\n Note that as of Nov 2021, multiple libraries (CuPy, PyTorch, TensorFlow,\n TVM, perhaps others) do not adhere to this 256 byte alignment requirement\n on CPU/CUDA/ROCm, and always use `byte_offset=0`.  This must be fixed\n (after which this note will be updated); at the moment it is recommended\n to not rely on the data pointer being correctly aligned.\n\n For given DLTensor, the size of memory required to store the contents of\n data is calculated as follows:\n\n \\code{.c}\n static inline size_t GetDataSize(const DLTensor* t) {\n   size_t size = 1;\n   for (tvm_index_t i = 0; i < t->ndim; ++i) {\n     size *= t->shape[i];\n   }\n   size *= (t->dtype.bits * t->dtype.lanes + 7) / 8;\n   return size;\n }\n \\endcode\n\n Note that if the tensor is of size zero, then the data pointer should be\n set to `NULL`."]
    pub data: *mut ::core::ffi::c_void,
    #[doc = " \\brief The device of the tensor"]
    pub device: DLDevice,
    #[doc = " \\brief Number of dimensions"]
    pub ndim: i32,
    #[doc = " \\brief The data type of the pointer"]
    pub dtype: DLDataType,
    #[doc = " \\brief The shape of the tensor\n\n  When ndim == 0, shape can be set to NULL."]
    pub shape: *mut i64,
    #[doc = " \\brief strides of the tensor (in number of elements, not bytes),\n  can not be NULL if ndim != 0, must points to\n  an array of ndim elements that specifies the strides,\n  so consumer can always rely on strides[dim] being valid for 0 <= dim < ndim.\n\n  When ndim == 0, strides can be set to NULL.\n\n  \\note Before DLPack v1.2, strides can be NULL to indicate contiguous data.\n        This is not allowed in DLPack v1.2 and later. The rationale\n        is to simplify the consumer handling."]
    pub strides: *mut i64,
    #[doc = " \\brief The offset in bytes to the beginning pointer to data"]
    pub byte_offset: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of DLTensor"][::core::mem::size_of::<DLTensor>() - 48usize];
    ["Alignment of DLTensor"][::core::mem::align_of::<DLTensor>() - 8usize];
    ["Offset of field: DLTensor::data"][::core::mem::offset_of!(DLTensor, data) - 0usize];
    ["Offset of field: DLTensor::device"][::core::mem::offset_of!(DLTensor, device) - 8usize];
    ["Offset of field: DLTensor::ndim"][::core::mem::offset_of!(DLTensor, ndim) - 16usize];
    ["Offset of field: DLTensor::dtype"][::core::mem::offset_of!(DLTensor, dtype) - 20usize];
    ["Offset of field: DLTensor::shape"][::core::mem::offset_of!(DLTensor, shape) - 24usize];
    ["Offset of field: DLTensor::strides"][::core::mem::offset_of!(DLTensor, strides) - 32usize];
    ["Offset of field: DLTensor::byte_offset"][::core::mem::offset_of!(DLTensor, byte_offset) - 40usize];
};
#[doc = " \\brief C Tensor object, manage memory of DLTensor. This data structure is\n  intended to facilitate the borrowing of DLTensor by another framework. It is\n  not meant to transfer the tensor. When the borrowing framework doesn't need\n  the tensor, it should call the deleter to notify the host that the resource\n  is no longer needed.\n\n \\note This data structure is used as Legacy DLManagedTensor\n       in DLPack exchange and is deprecated after DLPack v0.8\n       Use DLManagedTensorVersioned instead.\n       This data structure may get renamed or deleted in future versions.\n\n \\sa DLManagedTensorVersioned"]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct DLManagedTensor {
    #[doc = " \\brief DLTensor which is being memory managed"]
    pub dl_tensor: DLTensor,
    #[doc = " \\brief the context of the original host framework of DLManagedTensor in\n   which DLManagedTensor is used in the framework. It can also be NULL."]
    pub manager_ctx: *mut ::core::ffi::c_void,
    #[doc = " \\brief Destructor - this should be called\n to destruct the manager_ctx  which backs the DLManagedTensor. It can be\n NULL if there is no way for the caller to provide a reasonable destructor.\n The destructor deletes the argument self as well."]
    pub deleter: ::core::option::Option<unsafe extern "C" fn(self_: *mut DLManagedTensor)>,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of DLManagedTensor"][::core::mem::size_of::<DLManagedTensor>() - 64usize];
    ["Alignment of DLManagedTensor"][::core::mem::align_of::<DLManagedTensor>() - 8usize];
    ["Offset of field: DLManagedTensor::dl_tensor"][::core::mem::offset_of!(DLManagedTensor, dl_tensor) - 0usize];
    ["Offset of field: DLManagedTensor::manager_ctx"][::core::mem::offset_of!(DLManagedTensor, manager_ctx) - 48usize];
    ["Offset of field: DLManagedTensor::deleter"][::core::mem::offset_of!(DLManagedTensor, deleter) - 56usize];
};
#[doc = " \\brief A versioned and managed C Tensor object, manage memory of DLTensor.\n\n This data structure is intended to facilitate the borrowing of DLTensor by\n another framework. It is not meant to transfer the tensor. When the borrowing\n framework doesn't need the tensor, it should call the deleter to notify the\n host that the resource is no longer needed.\n\n \\note This is the current standard DLPack exchange data structure."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct DLManagedTensorVersioned {
    #[doc = " \\brief The API and ABI version of the current managed Tensor"]
    pub version: DLPackVersion,
    #[doc = " \\brief the context of the original host framework.\n\n Stores DLManagedTensorVersioned is used in the\n framework. It can also be NULL."]
    pub manager_ctx: *mut ::core::ffi::c_void,
    #[doc = " \\brief Destructor.\n\n This should be called to destruct manager_ctx which holds the DLManagedTensorVersioned.\n It can be NULL if there is no way for the caller to provide a reasonable\n destructor. The destructor deletes the argument self as well."]
    pub deleter: ::core::option::Option<unsafe extern "C" fn(self_: *mut DLManagedTensorVersioned)>,
    #[doc = " \\brief Additional bitmask flags information about the tensor.\n\n By default the flags should be set to 0.\n\n \\note Future ABI changes should keep everything until this field\n       stable, to ensure that deleter can be correctly called.\n\n \\sa DLPACK_FLAG_BITMASK_READ_ONLY\n \\sa DLPACK_FLAG_BITMASK_IS_COPIED"]
    pub flags: u64,
    #[doc = " \\brief DLTensor which is being memory managed"]
    pub dl_tensor: DLTensor,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of DLManagedTensorVersioned"][::core::mem::size_of::<DLManagedTensorVersioned>() - 80usize];
    ["Alignment of DLManagedTensorVersioned"][::core::mem::align_of::<DLManagedTensorVersioned>() - 8usize];
    ["Offset of field: DLManagedTensorVersioned::version"]
        [::core::mem::offset_of!(DLManagedTensorVersioned, version) - 0usize];
    ["Offset of field: DLManagedTensorVersioned::manager_ctx"]
        [::core::mem::offset_of!(DLManagedTensorVersioned, manager_ctx) - 8usize];
    ["Offset of field: DLManagedTensorVersioned::deleter"]
        [::core::mem::offset_of!(DLManagedTensorVersioned, deleter) - 16usize];
    ["Offset of field: DLManagedTensorVersioned::flags"]
        [::core::mem::offset_of!(DLManagedTensorVersioned, flags) - 24usize];
    ["Offset of field: DLManagedTensorVersioned::dl_tensor"]
        [::core::mem::offset_of!(DLManagedTensorVersioned, dl_tensor) - 32usize];
};
#[doc = "----------------------------------------------------------------------\n DLPack `__dlpack_c_exchange_api__` fast exchange protocol definitions\n----------------------------------------------------------------------\n*!\n* \\brief Request a producer library to create a new tensor.\n*\n* Create a new `DLManagedTensorVersioned` within the context of the producer\n* library. The allocation is defined via the prototype DLTensor.\n*\n* This function is exposed by the framework through the DLPackExchangeAPI.\n*\n* \\param prototype The prototype DLTensor. Only the dtype, ndim, shape,\n*        and device fields are used.\n* \\param out The output DLManagedTensorVersioned.\n* \\param error_ctx Context for `SetError`.\n* \\param SetError The function to set the error.\n* \\return The owning DLManagedTensorVersioned* or NULL on failure.\n*         SetError is called exactly when NULL is returned (the implementer\n*         must ensure this).\n* \\note - As a C function, must not thrown C++ exceptions.\n*       - Error propagation via SetError to avoid any direct need\n*         of Python API. Due to this `SetError` may have to ensure the GIL is\n*         held since it will presumably set a Python error.\n*\n* \\sa DLPackExchangeAPI\n*/"]
pub type DLPackManagedTensorAllocator = ::core::option::Option<
    unsafe extern "C" fn(
        prototype: *mut DLTensor,
        out: *mut *mut DLManagedTensorVersioned,
        error_ctx: *mut ::core::ffi::c_void,
        SetError: ::core::option::Option<
            unsafe extern "C" fn(
                error_ctx: *mut ::core::ffi::c_void,
                kind: *const ::core::ffi::c_char,
                message: *const ::core::ffi::c_char,
            ),
        >,
    ) -> ::core::ffi::c_int,
>;
#[doc = " \\brief Exports a PyObject* Tensor/NDArray to a DLManagedTensorVersioned.\n\n This function does not perform any stream synchronization. The consumer should query\n DLPackCurrentWorkStream to get the current work stream and launch kernels on it.\n\n This function is exposed by the framework through the DLPackExchangeAPI.\n\n \\param py_object The Python object to convert. Must have the same type\n        as the one the `DLPackExchangeAPI` was discovered from.\n \\param out The output DLManagedTensorVersioned.\n \\return The owning DLManagedTensorVersioned* or NULL on failure with a\n         Python exception set. If the data cannot be described using DLPack\n         this should be a BufferError if possible.\n \\note - As a C function, must not thrown C++ exceptions.\n\n \\sa DLPackExchangeAPI, DLPackCurrentWorkStream"]
pub type DLPackManagedTensorFromPyObjectNoSync = ::core::option::Option<
    unsafe extern "C" fn(
        py_object: *mut ::core::ffi::c_void,
        out: *mut *mut DLManagedTensorVersioned,
    ) -> ::core::ffi::c_int,
>;
#[doc = " \\brief Exports a PyObject* Tensor/NDArray to a provided DLTensor.\n\n This function provides a faster interface for temporary, non-owning, exchange.\n The producer (implementer) still owns the memory of data, strides, shape.\n The liveness of the DLTensor and the data it views is only guaranteed until\n control is returned.\n\n This function currently assumes that the producer (implementer) can fill\n in the DLTensor shape and strides without the need for temporary allocations.\n\n This function does not perform any stream synchronization. The consumer should query\n DLPackCurrentWorkStream to get the current work stream and launch kernels on it.\n\n This function is exposed by the framework through the DLPackExchangeAPI.\n\n \\param py_object The Python object to convert. Must have the same type\n        as the one the `DLPackExchangeAPI` was discovered from.\n \\param out The output DLTensor, whose space is pre-allocated on stack.\n \\return 0 on success, -1 on failure with a Python exception set.\n \\note - As a C function, must not thrown C++ exceptions.\n\n \\sa DLPackExchangeAPI, DLPackCurrentWorkStream"]
pub type DLPackDLTensorFromPyObjectNoSync = ::core::option::Option<
    unsafe extern "C" fn(py_object: *mut ::core::ffi::c_void, out: *mut DLTensor) -> ::core::ffi::c_int,
>;
#[doc = " \\brief Obtain the current work stream of a device.\n\n Obtain the current work stream of a device from the producer framework.\n For example, it should map to torch.cuda.current_stream in PyTorch.\n\n When device_type is kDLCPU, the consumer do not have to query the stream\n and the producer can simply return NULL when queried.\n The consumer do not have to do anything on stream sync or setting.\n So CPU only framework can just provide a dummy implementation that\n always set out_current_stream[0] to NULL.\n\n \\param device_type The device type.\n \\param device_id The device id.\n \\param out_current_stream The output current work stream.\n\n \\return 0 on success, -1 on failure with a Python exception set.\n \\note - As a C function, must not thrown C++ exceptions.\n\n \\sa DLPackExchangeAPI"]
pub type DLPackCurrentWorkStream = ::core::option::Option<
    unsafe extern "C" fn(
        device_type: DLDeviceType,
        device_id: i32,
        out_current_stream: *mut *mut ::core::ffi::c_void,
    ) -> ::core::ffi::c_int,
>;
#[doc = " \\brief Imports a DLManagedTensorVersioned to a PyObject* Tensor/NDArray.\n\n Convert an owning DLManagedTensorVersioned* to the Python tensor of the\n producer (implementer) library with the correct type.\n\n This function does not perform any stream synchronization.\n\n This function is exposed by the framework through the DLPackExchangeAPI.\n\n \\param tensor The DLManagedTensorVersioned to convert the ownership of the\n        tensor is stolen.\n \\param out_py_object The output Python object.\n \\return 0 on success, -1 on failure with a Python exception set.\n\n \\sa DLPackExchangeAPI"]
pub type DLPackManagedTensorToPyObjectNoSync = ::core::option::Option<
    unsafe extern "C" fn(
        tensor: *mut DLManagedTensorVersioned,
        out_py_object: *mut *mut ::core::ffi::c_void,
    ) -> ::core::ffi::c_int,
>;
#[doc = " \\brief DLPackExchangeAPI stable header.\n \\sa DLPackExchangeAPI"]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct DLPackExchangeAPIHeader {
    #[doc = " \\brief The provided DLPack version the consumer must check major version\n        compatibility before using this struct."]
    pub version: DLPackVersion,
    #[doc = " \\brief Optional pointer to an older DLPackExchangeAPI in the chain.\n\n It must be NULL if the framework does not support older versions.\n If the current major version is larger than the one supported by the\n consumer, the consumer may walk this to find an earlier supported version.\n\n \\sa DLPackExchangeAPI"]
    pub prev_api: *mut DLPackExchangeAPIHeader,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of DLPackExchangeAPIHeader"][::core::mem::size_of::<DLPackExchangeAPIHeader>() - 16usize];
    ["Alignment of DLPackExchangeAPIHeader"][::core::mem::align_of::<DLPackExchangeAPIHeader>() - 8usize];
    ["Offset of field: DLPackExchangeAPIHeader::version"]
        [::core::mem::offset_of!(DLPackExchangeAPIHeader, version) - 0usize];
    ["Offset of field: DLPackExchangeAPIHeader::prev_api"]
        [::core::mem::offset_of!(DLPackExchangeAPIHeader, prev_api) - 8usize];
};
#[doc = " \\brief Framework-specific function pointers table for DLPack exchange.\n\n Additionally to `__dlpack__()` we define a C function table sharable by\n\n Python implementations via `__dlpack_c_exchange_api__`.\n This attribute must be set on the type as a Python PyCapsule\n with name \"dlpack_exchange_api\".\n\n A consumer library may use a pattern such as:\n\n \\code\n\n  PyObject *api_capsule = PyObject_GetAttrString(\n    (PyObject *)Py_TYPE(tensor_obj), \"__dlpack_c_exchange_api__\")\n  );\n  if (api_capsule == NULL) { goto handle_error; }\n  MyDLPackExchangeAPI *api = (MyDLPackExchangeAPI *)PyCapsule_GetPointer(\n    api_capsule, \"dlpack_exchange_api\"\n  );\n  Py_DECREF(api_capsule);\n  if (api == NULL) { goto handle_error; }\n\n \\endcode\n\n Note that this must be defined on the type. The consumer should look up the\n attribute on the type and may cache the result for each unique type.\n\n The precise API table is given by:\n \\code\n struct MyDLPackExchangeAPI : public DLPackExchangeAPI {\n   MyDLPackExchangeAPI() {\n     header.version.major = DLPACK_MAJOR_VERSION;\n     header.version.minor = DLPACK_MINOR_VERSION;\n     header.prev_version_api = nullptr;\n\n     managed_tensor_allocator = MyDLPackManagedTensorAllocator;\n     managed_tensor_from_py_object_no_sync = MyDLPackManagedTensorFromPyObjectNoSync;\n     managed_tensor_to_py_object_no_sync = MyDLPackManagedTensorToPyObjectNoSync;\n     dltensor_from_py_object_no_sync = MyDLPackDLTensorFromPyObjectNoSync;\n     current_work_stream = MyDLPackCurrentWorkStream;\n  }\n\n  static const DLPackExchangeAPI* Global() {\n     static MyDLPackExchangeAPI inst;\n     return &inst;\n  }\n };\n \\endcode\n\n Guidelines for leveraging DLPackExchangeAPI:\n\n There are generally two kinds of consumer needs for DLPack exchange:\n - N0: library support, where consumer.kernel(x, y, z) would like to run a kernel\n       with the data from x, y, z. The consumer is also expected to run the kernel with the same\n       stream context as the producer. For example, when x, y, z is torch.Tensor,\n       consumer should query exchange_api->current_work_stream to get the\n       current stream and launch the kernel with the same stream.\n       This setup is necessary for no synchronization in kernel launch and maximum compatibility\n       with CUDA graph capture in the producer.\n       This is the desirable behavior for library extension support for frameworks like PyTorch.\n - N1: data ingestion and retention\n\n Note that obj.__dlpack__() API should provide useful ways for N1.\n The primary focus of the current DLPackExchangeAPI is to enable faster exchange N0\n with the support of the function pointer current_work_stream.\n\n Array/Tensor libraries should statically create and initialize this structure\n then return a pointer to DLPackExchangeAPI as an int value in Tensor/Array.\n The DLPackExchangeAPI* must stay alive throughout the lifetime of the process.\n\n One simple way to do so is to create a static instance of DLPackExchangeAPI\n within the framework and return a pointer to it. The following code\n shows an example to do so in C++. It should also be reasonably easy\n to do so in other languages."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct DLPackExchangeAPI {
    #[doc = " \\brief The header that remains stable across versions."]
    pub header: DLPackExchangeAPIHeader,
    #[doc = " \\brief Producer function pointer for DLPackManagedTensorAllocator\n        This function must not be NULL.\n \\sa DLPackManagedTensorAllocator"]
    pub managed_tensor_allocator: DLPackManagedTensorAllocator,
    #[doc = " \\brief Producer function pointer for DLPackManagedTensorFromPyObject\n        This function must be not NULL.\n \\sa DLPackManagedTensorFromPyObject"]
    pub managed_tensor_from_py_object_no_sync: DLPackManagedTensorFromPyObjectNoSync,
    #[doc = " \\brief Producer function pointer for DLPackManagedTensorToPyObject\n        This function must be not NULL.\n \\sa DLPackManagedTensorToPyObjectNoSync"]
    pub managed_tensor_to_py_object_no_sync: DLPackManagedTensorToPyObjectNoSync,
    #[doc = " \\brief Producer function pointer for DLPackDLTensorFromPyObject\n        This function can be NULL when the producer does not support this function.\n \\sa DLPackDLTensorFromPyObjectNoSync"]
    pub dltensor_from_py_object_no_sync: DLPackDLTensorFromPyObjectNoSync,
    #[doc = " \\brief Producer function pointer for DLPackCurrentWorkStream\n        This function must be not NULL.\n \\sa DLPackCurrentWorkStream"]
    pub current_work_stream: DLPackCurrentWorkStream,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of DLPackExchangeAPI"][::core::mem::size_of::<DLPackExchangeAPI>() - 56usize];
    ["Alignment of DLPackExchangeAPI"][::core::mem::align_of::<DLPackExchangeAPI>() - 8usize];
    ["Offset of field: DLPackExchangeAPI::header"][::core::mem::offset_of!(DLPackExchangeAPI, header) - 0usize];
    ["Offset of field: DLPackExchangeAPI::managed_tensor_allocator"]
        [::core::mem::offset_of!(DLPackExchangeAPI, managed_tensor_allocator) - 16usize];
    ["Offset of field: DLPackExchangeAPI::managed_tensor_from_py_object_no_sync"]
        [::core::mem::offset_of!(DLPackExchangeAPI, managed_tensor_from_py_object_no_sync) - 24usize];
    ["Offset of field: DLPackExchangeAPI::managed_tensor_to_py_object_no_sync"]
        [::core::mem::offset_of!(DLPackExchangeAPI, managed_tensor_to_py_object_no_sync) - 32usize];
    ["Offset of field: DLPackExchangeAPI::dltensor_from_py_object_no_sync"]
        [::core::mem::offset_of!(DLPackExchangeAPI, dltensor_from_py_object_no_sync) - 40usize];
    ["Offset of field: DLPackExchangeAPI::current_work_stream"]
        [::core::mem::offset_of!(DLPackExchangeAPI, current_work_stream) - 48usize];
};
#[doc = " The result of a call; 0 is success. Treat an unknown code by its band: 1..99 misuse (the program is wrong), 100..199\n capacity (try later, or with less), 200..299 state, 300..399 device, 400..499 data and I/O, 900..999 internal.\n docs/reference/errors.md says what to do about each."]
pub type kvc_status = i32;
pub const KVC_OK: kvc_status_code = 0;
#[doc = " a value out of its range, or values that contradict each other"]
pub const KVC_ERROR_INVALID_ARGUMENT: kvc_status_code = 1;
#[doc = " NULL where a pointer is needed"]
pub const KVC_ERROR_NULL_ARGUMENT: kvc_status_code = 2;
#[doc = " struct_size is below that of the first release, or differs within an array"]
pub const KVC_ERROR_STRUCT_SIZE: kvc_status_code = 3;
#[doc = " well formed, but this library or backend cannot do it"]
pub const KVC_ERROR_UNSUPPORTED: kvc_status_code = 4;
#[doc = " a tensor's dtype"]
pub const KVC_ERROR_DTYPE: kvc_status_code = 5;
#[doc = " a tensor's device, or a stream that the device does not have"]
pub const KVC_ERROR_DEVICE: kvc_status_code = 6;
#[doc = " a tensor's number of dimensions"]
pub const KVC_ERROR_RANK: kvc_status_code = 7;
#[doc = " a tensor's shape"]
pub const KVC_ERROR_SHAPE: kvc_status_code = 8;
#[doc = " a tensor's strides, or its alignment"]
pub const KVC_ERROR_STRIDE: kvc_status_code = 9;
#[doc = " a layer, group, position or length that does not exist"]
pub const KVC_ERROR_OUT_OF_RANGE: kvc_status_code = 10;
#[doc = " a sequence or forward that is gone, or is of another cache"]
pub const KVC_ERROR_STALE_ID: kvc_status_code = 11;
#[doc = " the same sequence twice in one call"]
pub const KVC_ERROR_DUPLICATE: kvc_status_code = 12;
#[doc = " KVC_CONTEXT_VALIDATE: the device met a bad index of an earlier call; this one did nothing"]
pub const KVC_ERROR_EARLIER_CALL: kvc_status_code = 13;
#[doc = " required, available: pages of `group`"]
pub const KVC_ERROR_OUT_OF_PAGES: kvc_status_code = 100;
#[doc = " the host or the device refused memory"]
pub const KVC_ERROR_OUT_OF_MEMORY: kvc_status_code = 101;
#[doc = " required, available: sequences"]
pub const KVC_ERROR_TOO_MANY_SEQUENCES: kvc_status_code = 102;
#[doc = " required, available: open forwards"]
pub const KVC_ERROR_TOO_MANY_FORWARDS: kvc_status_code = 103;
#[doc = " required, available: tokens or rows of a batch"]
pub const KVC_ERROR_BATCH_TOO_LARGE: kvc_status_code = 104;
#[doc = " required, available: elements of an output array"]
pub const KVC_ERROR_BUFFER_TOO_SMALL: kvc_status_code = 105;
#[doc = " required, available: uncommitted tree nodes of a sequence"]
pub const KVC_ERROR_TREE_TOO_LARGE: kvc_status_code = 106;
#[doc = " the sequence is in an open forward or a job, or another thread uses the forward"]
pub const KVC_ERROR_BUSY: kvc_status_code = 200;
#[doc = " calls in the wrong order, or the same call twice"]
pub const KVC_ERROR_ORDER: kvc_status_code = 201;
#[doc = " the forward was cancelled (only abort is left), or the job of a suspend or resume was\ncancelled"]
pub const KVC_ERROR_CANCELLED: kvc_status_code = 202;
#[doc = " the needed keys were freed, because they left a window"]
pub const KVC_ERROR_EVICTED: kvc_status_code = 203;
#[doc = " the sequence has an uncommitted tree: kvc_seq_commit first"]
pub const KVC_ERROR_UNCOMMITTED: kvc_status_code = 204;
#[doc = " a plan's arrays hold another step than the requested one, or no step is open in a graph"]
pub const KVC_ERROR_STALE: kvc_status_code = 205;
#[doc = " the sequence is suspended: kvc_seq_resume it first"]
pub const KVC_ERROR_SUSPENDED: kvc_status_code = 206;
#[doc = " no backend, driver or device of that type"]
pub const KVC_ERROR_DEVICE_UNAVAILABLE: kvc_status_code = 300;
#[doc = " the driver reported an error: the message has its name and the call"]
pub const KVC_ERROR_DEVICE_FAILED: kvc_status_code = 301;
#[doc = " a file, or a callback that writes or reads, failed: the message has the reason"]
pub const KVC_ERROR_IO: kvc_status_code = 400;
#[doc = " stored bytes are damaged, cut off, or were never written by this library"]
pub const KVC_ERROR_CORRUPT: kvc_status_code = 401;
#[doc = " stored bytes are whole, but of another model, dtype or layout: the message has both"]
pub const KVC_ERROR_LAYOUT: kvc_status_code = 402;
#[doc = " a bug of the library; kvc_cache_check_invariants reports with this code"]
pub const KVC_ERROR_INTERNAL: kvc_status_code = 900;
pub type kvc_status_code = ::core::ffi::c_uint;
#[doc = " What went wrong, in numbers and in words. The caller owns it, and the library writes it only on failure. The layout of\n this struct is frozen."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_error {
    #[doc = " sizeof(kvc_error); KVC_ERROR_INIT sets it"]
    pub struct_size: u32,
    #[doc = " the returned status"]
    pub code: kvc_status,
    #[doc = " row, layer or array element at fault; -1 = none"]
    pub index: i64,
    #[doc = " what the call needs, for capacity errors and where a comment says so; else 0"]
    pub required: i64,
    #[doc = " what is available, for the same errors; else 0"]
    pub available: i64,
    #[doc = " layer group at fault; -1 = none"]
    pub group: i64,
    #[doc = " \"function: what, with the values\"; NUL-terminated ASCII"]
    pub message: [::core::ffi::c_char; 472usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_error"][::core::mem::size_of::<kvc_error>() - 512usize];
    ["Alignment of kvc_error"][::core::mem::align_of::<kvc_error>() - 8usize];
    ["Offset of field: kvc_error::struct_size"][::core::mem::offset_of!(kvc_error, struct_size) - 0usize];
    ["Offset of field: kvc_error::code"][::core::mem::offset_of!(kvc_error, code) - 4usize];
    ["Offset of field: kvc_error::index"][::core::mem::offset_of!(kvc_error, index) - 8usize];
    ["Offset of field: kvc_error::required"][::core::mem::offset_of!(kvc_error, required) - 16usize];
    ["Offset of field: kvc_error::available"][::core::mem::offset_of!(kvc_error, available) - 24usize];
    ["Offset of field: kvc_error::group"][::core::mem::offset_of!(kvc_error, group) - 32usize];
    ["Offset of field: kvc_error::message"][::core::mem::offset_of!(kvc_error, message) - 40usize];
};
#[doc = " ============================================================================================\n 4  Context: one device, its threads and scratch\n ============================================================================================"]
#[repr(C)]
#[derive(Debug)]
pub struct kvc_context {
    _unused: [u8; 0],
}
#[doc = " Rules for the host's callbacks. Several threads may call them at once. The library holds no lock while it calls them.\n They must not unwind, and must not destroy the context or a cache. They are not called again after kvc_context_destroy\n and kvc_cache_destroy of every cache in the context. Exported tensors never call them."]
pub type kvc_parallel_item_fn = ::core::option::Option<unsafe extern "C" fn(arg: *mut ::core::ffi::c_void, index: i64)>;
#[doc = " Runs item(arg, i) once for each i in [0, n), and returns when all are done. The items may run in any order and on any\n threads, even on one. Items never wait for each other."]
pub type kvc_parallel_for_fn = ::core::option::Option<
    unsafe extern "C" fn(
        user: *mut ::core::ffi::c_void,
        n: i64,
        item: kvc_parallel_item_fn,
        arg: *mut ::core::ffi::c_void,
    ),
>;
#[doc = " Validation mode: for tests, and to find a call that wrote outside of its pages. The device checks all values of index\n tensors that only a GPU reads (sections 10 and 11), page ids too. A row or token with a bad value is skipped. A\n kvc_plan_build with a bad value is skipped as a whole.\n\n The device keeps the first bad value since the last report. The next call with index tensors on the context, or\n kvc_context_check, reports this value as EARLIER_CALL without waiting. The message names the call, the tensor, the row\n and the value; error->index is the row. The reporting call has no other effect and may be repeated, except that\n kvc_plan_build also invalidates its plan, as a refused build does. Replays of captured calls are checked as they run.\n\n The cost is a pass over the page ids in use; without the flag there is none. Values that the host reads (on the CPU,\n all values) are checked by the call itself, with or without the flag."]
pub const KVC_CONTEXT_VALIDATE: kvc_context_flags = 1;
pub type kvc_context_flags = ::core::ffi::c_uint;
pub const KVC_LOG_WARNING: kvc_log_level = 1;
pub const KVC_LOG_INFO: kvc_log_level = 2;
pub const KVC_LOG_DEBUG: kvc_log_level = 3;
pub type kvc_log_level = ::core::ffi::c_uint;
#[doc = " Called on the thread that called the library; `message` is borrowed."]
pub type kvc_log_fn = ::core::option::Option<
    unsafe extern "C" fn(user: *mut ::core::ffi::c_void, level: i32, message: *const ::core::ffi::c_char),
>;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_context_config {
    pub struct_size: u32,
    #[doc = " a DLDeviceType; 0 = kDLCPU"]
    pub device_type: i32,
    #[doc = " ordinal of the device; 0 on the CPU"]
    pub device_id: i32,
    #[doc = " CPU: threads that compute, the caller's included; 0 = min(affinity mask, cgroup quota). With\nparallel_for: the largest number of threads that it uses at once. At most 1024."]
    pub num_threads: i32,
    #[doc = " SIMD target. nullable: the best one of this CPU. Else the name of a target from\nkvc_context_describe, or \"reference\" (float64, for tests). avx512_amx requests AMX tiles for the\nwhole process"]
    pub simd: *const ::core::ffi::c_char,
    #[doc = " nullable: the context has its own threads, started on first use. Else the host's\npool"]
    pub parallel_for: kvc_parallel_for_fn,
    pub parallel_for_user: *mut ::core::ffi::c_void,
    #[doc = " nullable: silence"]
    pub log: kvc_log_fn,
    pub log_user: *mut ::core::ffi::c_void,
    #[doc = " nullable: the default backend. (The CPU's is built in. CUDA's is the file $KVCACHE_CUDA_BACKEND, or\nlibkvcache_cuda.so beside this library.) Else the file of a backend (kvcache_backend.h), which\nstays loaded"]
    pub backend: *const ::core::ffi::c_char,
    #[doc = " KVC_CONTEXT_*"]
    pub flags: u32,
    #[doc = " 0"]
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_context_config"][::core::mem::size_of::<kvc_context_config>() - 72usize];
    ["Alignment of kvc_context_config"][::core::mem::align_of::<kvc_context_config>() - 8usize];
    ["Offset of field: kvc_context_config::struct_size"]
        [::core::mem::offset_of!(kvc_context_config, struct_size) - 0usize];
    ["Offset of field: kvc_context_config::device_type"]
        [::core::mem::offset_of!(kvc_context_config, device_type) - 4usize];
    ["Offset of field: kvc_context_config::device_id"][::core::mem::offset_of!(kvc_context_config, device_id) - 8usize];
    ["Offset of field: kvc_context_config::num_threads"]
        [::core::mem::offset_of!(kvc_context_config, num_threads) - 12usize];
    ["Offset of field: kvc_context_config::simd"][::core::mem::offset_of!(kvc_context_config, simd) - 16usize];
    ["Offset of field: kvc_context_config::parallel_for"]
        [::core::mem::offset_of!(kvc_context_config, parallel_for) - 24usize];
    ["Offset of field: kvc_context_config::parallel_for_user"]
        [::core::mem::offset_of!(kvc_context_config, parallel_for_user) - 32usize];
    ["Offset of field: kvc_context_config::log"][::core::mem::offset_of!(kvc_context_config, log) - 40usize];
    ["Offset of field: kvc_context_config::log_user"][::core::mem::offset_of!(kvc_context_config, log_user) - 48usize];
    ["Offset of field: kvc_context_config::backend"][::core::mem::offset_of!(kvc_context_config, backend) - 56usize];
    ["Offset of field: kvc_context_config::flags"][::core::mem::offset_of!(kvc_context_config, flags) - 64usize];
    ["Offset of field: kvc_context_config::reserved"][::core::mem::offset_of!(kvc_context_config, reserved) - 68usize];
};
#[doc = " ============================================================================================\n 5  Cache: layers, groups, capacity\n ============================================================================================"]
#[repr(C)]
#[derive(Debug)]
pub struct kvc_cache {
    _unused: [u8; 0],
}
#[doc = " q and k are used unchanged, and the other rope_* fields are ignored"]
pub const KVC_ROPE_NONE: kvc_rope_mode = 0;
#[doc = " the library rotates q and k at their positions, and stores rotated k. Rotated q is rounded to q's\ndtype, as if the caller had rotated it"]
pub const KVC_ROPE_ON_APPEND: kvc_rope_mode = 1;
#[doc = " k is stored, exported and imported unrotated. attend rotates q as above, and rotates each key in\nfloat32 when it reads it"]
pub const KVC_ROPE_ON_READ: kvc_rope_mode = 2;
#[doc = " Whether the library rotates q and k (rotary position embedding, RoPE), and when. Pair i of a rotated vector of rope_dim\n dims is rotated by the angle position * f(i), where f(i) = rope_theta^(-2i/rope_dim) unless a scaling changes it.\n docs/reference/rope.md has every formula."]
pub type kvc_rope_mode = ::core::ffi::c_uint;
pub const KVC_ROPE_SCALING_NONE: kvc_rope_scaling_kind = 0;
#[doc = " f(i) / factor (position interpolation)"]
pub const KVC_ROPE_SCALING_LINEAR: kvc_rope_scaling_kind = 1;
#[doc = " f(i) / factor for long wavelengths, f(i) for short ones, and a blend of both between\nlow_freq_factor and high_freq_factor"]
pub const KVC_ROPE_SCALING_LLAMA3: kvc_rope_scaling_kind = 2;
#[doc = " f(i) / factor for pairs with at most beta_slow rotations over the original length, f(i)\nfor pairs with at least beta_fast, and a blend of both between them; scales cos and sin"]
pub const KVC_ROPE_SCALING_YARN: kvc_rope_scaling_kind = 3;
#[doc = " f(i) / short_factors[i] or / long_factors[i]; scales cos and sin"]
pub const KVC_ROPE_SCALING_LONGROPE: kvc_rope_scaling_kind = 4;
pub type kvc_rope_scaling_kind = ::core::ffi::c_uint;
#[doc = " yarn: the bounds of the blend are not rounded to whole pairs (\"truncate\": false)"]
pub const KVC_ROPE_SCALING_NO_TRUNCATE: kvc_rope_scaling_flags = 1;
pub type kvc_rope_scaling_flags = ::core::ffi::c_uint;
#[doc = " How a model was extended beyond the length that it was trained for: the fields of \"rope_scaling\" in its config.json.\n Fields that `kind` does not use must be 0."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_rope_scaling {
    pub struct_size: u32,
    #[doc = " KVC_ROPE_SCALING_*"]
    pub kind: i32,
    #[doc = " KVC_ROPE_SCALING_NO_TRUNCATE"]
    pub flags: u32,
    #[doc = " longrope: rope_dim / 2"]
    pub num_short_factors: i32,
    #[doc = " longrope: rope_dim / 2"]
    pub num_long_factors: i32,
    #[doc = " 0"]
    pub reserved: u32,
    #[doc = " llama3, yarn, longrope: the length in tokens that the model was first trained for,\n2..2^30"]
    pub original_max_position: i64,
    #[doc = " 1..1e6. longrope: only for the default of attention_factor; 0 = 1"]
    pub factor: f64,
    #[doc = " llama3: > 0"]
    pub low_freq_factor: f64,
    #[doc = " llama3: > low_freq_factor"]
    pub high_freq_factor: f64,
    #[doc = " yarn: > 0, usually above beta_slow; 0 = 32"]
    pub beta_fast: f64,
    #[doc = " yarn: > 0; 0 = 1"]
    pub beta_slow: f64,
    #[doc = " yarn, longrope: multiplies cos and sin of q and of k, > 0; 0 = the kind's default"]
    pub attention_factor: f64,
    #[doc = " yarn: with mscale_all_dim, sets the default of attention_factor, as in DeepSeek. Alone it\nhas no effect"]
    pub mscale: f64,
    #[doc = " yarn: with mscale. It does not change softmax_scale: docs/reference/rope.md"]
    pub mscale_all_dim: f64,
    #[doc = " longrope: borrowed; [num_short_factors], each 1e-6..1e6"]
    pub short_factors: *const f64,
    #[doc = " longrope: borrowed; [num_long_factors], each 1e-6..1e6"]
    pub long_factors: *const f64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_rope_scaling"][::core::mem::size_of::<kvc_rope_scaling>() - 112usize];
    ["Alignment of kvc_rope_scaling"][::core::mem::align_of::<kvc_rope_scaling>() - 8usize];
    ["Offset of field: kvc_rope_scaling::struct_size"][::core::mem::offset_of!(kvc_rope_scaling, struct_size) - 0usize];
    ["Offset of field: kvc_rope_scaling::kind"][::core::mem::offset_of!(kvc_rope_scaling, kind) - 4usize];
    ["Offset of field: kvc_rope_scaling::flags"][::core::mem::offset_of!(kvc_rope_scaling, flags) - 8usize];
    ["Offset of field: kvc_rope_scaling::num_short_factors"]
        [::core::mem::offset_of!(kvc_rope_scaling, num_short_factors) - 12usize];
    ["Offset of field: kvc_rope_scaling::num_long_factors"]
        [::core::mem::offset_of!(kvc_rope_scaling, num_long_factors) - 16usize];
    ["Offset of field: kvc_rope_scaling::reserved"][::core::mem::offset_of!(kvc_rope_scaling, reserved) - 20usize];
    ["Offset of field: kvc_rope_scaling::original_max_position"]
        [::core::mem::offset_of!(kvc_rope_scaling, original_max_position) - 24usize];
    ["Offset of field: kvc_rope_scaling::factor"][::core::mem::offset_of!(kvc_rope_scaling, factor) - 32usize];
    ["Offset of field: kvc_rope_scaling::low_freq_factor"]
        [::core::mem::offset_of!(kvc_rope_scaling, low_freq_factor) - 40usize];
    ["Offset of field: kvc_rope_scaling::high_freq_factor"]
        [::core::mem::offset_of!(kvc_rope_scaling, high_freq_factor) - 48usize];
    ["Offset of field: kvc_rope_scaling::beta_fast"][::core::mem::offset_of!(kvc_rope_scaling, beta_fast) - 56usize];
    ["Offset of field: kvc_rope_scaling::beta_slow"][::core::mem::offset_of!(kvc_rope_scaling, beta_slow) - 64usize];
    ["Offset of field: kvc_rope_scaling::attention_factor"]
        [::core::mem::offset_of!(kvc_rope_scaling, attention_factor) - 72usize];
    ["Offset of field: kvc_rope_scaling::mscale"][::core::mem::offset_of!(kvc_rope_scaling, mscale) - 80usize];
    ["Offset of field: kvc_rope_scaling::mscale_all_dim"]
        [::core::mem::offset_of!(kvc_rope_scaling, mscale_all_dim) - 88usize];
    ["Offset of field: kvc_rope_scaling::short_factors"]
        [::core::mem::offset_of!(kvc_rope_scaling, short_factors) - 96usize];
    ["Offset of field: kvc_rope_scaling::long_factors"]
        [::core::mem::offset_of!(kvc_rope_scaling, long_factors) - 104usize];
};
#[doc = " rotated pairs are dims 2i, 2i+1 (GPT-J). Without this flag they are i, i + rope_dim/2\n(GPT-NeoX)"]
pub const KVC_LAYER_ROPE_INTERLEAVED: kvc_layer_flags = 1;
#[doc = " The layer stores K and no V: the index keys of a model with an indexer. kvc_forward_select chooses tokens by them, and\n nothing attends to them. The layer may be in any group that is neither recurrent nor cross, so index keys lie beside the\n K and V of other layers, under the same page ids. v_head_dim and latent_dim are 0, storage is k_storage alone, v_scales\n is NULL, and rope_mode is not KVC_ROPE_ON_READ. num_q_heads is the number of index heads"]
pub const KVC_LAYER_KEYS_ONLY: kvc_layer_flags = 2;
pub type kvc_layer_flags = ::core::ffi::c_uint;
#[doc = " One state tensor of a recurrent layer: what the layer keeps of one sequence, such as the last inputs of a convolution, or\n the state of linear attention or of a state-space model."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_state_config {
    pub struct_size: u32,
    #[doc = " float32, float16, bfloat16, int32, int64; {0,0,0} = float32"]
    pub dtype: DLDataType,
    #[doc = " 1..4"]
    pub rank: i32,
    #[doc = " 0"]
    pub reserved: u32,
    #[doc = " shape[0..rank - 1], each >= 1; the rest 0"]
    pub shape: [i64; 4usize],
    #[doc = " the value of all elements in the state of an empty sequence. It must fit the dtype: it is infinite,\nor it rounds to a finite number. For integers it is a whole number of at most 2^53"]
    pub fill: f64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_state_config"][::core::mem::size_of::<kvc_state_config>() - 56usize];
    ["Alignment of kvc_state_config"][::core::mem::align_of::<kvc_state_config>() - 8usize];
    ["Offset of field: kvc_state_config::struct_size"][::core::mem::offset_of!(kvc_state_config, struct_size) - 0usize];
    ["Offset of field: kvc_state_config::dtype"][::core::mem::offset_of!(kvc_state_config, dtype) - 4usize];
    ["Offset of field: kvc_state_config::rank"][::core::mem::offset_of!(kvc_state_config, rank) - 8usize];
    ["Offset of field: kvc_state_config::reserved"][::core::mem::offset_of!(kvc_state_config, reserved) - 12usize];
    ["Offset of field: kvc_state_config::shape"][::core::mem::offset_of!(kvc_state_config, shape) - 16usize];
    ["Offset of field: kvc_state_config::fill"][::core::mem::offset_of!(kvc_state_config, fill) - 48usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_layer_config {
    pub struct_size: u32,
    #[doc = " index into groups[]"]
    pub group: i32,
    #[doc = " Hq, a multiple of num_kv_heads, at most 65536"]
    pub num_q_heads: i32,
    #[doc = " Hkv, 1..4096; q head h reads kv head h / (Hq / Hkv)"]
    pub num_kv_heads: i32,
    #[doc = " D, 1..512 (MLA: 1..1152); multiples of 16 are fast"]
    pub head_dim: i32,
    #[doc = " Dv, 1..512; 0 = head_dim (MLA: latent_dim)"]
    pub v_head_dim: i32,
    #[doc = " of stored K and V: float32, float16, bfloat16; {0,0,0} = float32. Quantised: float8_e4m3fn,\nfloat8_e5m2, int8, uint4, float4_e2m1fn (docs/reference/formats.md). x is stored as x / scale, rounded to\neven, and saturated to the largest finite value (NaN stays NaN). It is read as stored * scale. int8: the\nrow of each token and head has its own scale amax / 127, stored in its page, where amax is the\nlargest magnitude in the row. No stored element is -128. If amax / 127 rounds to 0 in float32,\nthe row has scale 1 and is read as zeros. A row that holds an infinity or a NaN is read as NaN"]
    pub dtype: DLDataType,
    #[doc = " KVC_ROPE_*"]
    pub rope_mode: i32,
    #[doc = " rotated dims, even, rope_offset + rope_dim <= head_dim; 0 = head_dim - rope_offset"]
    pub rope_dim: i32,
    #[doc = " first rotated dim; MLA: at least latent_dim, and 0 = latent_dim"]
    pub rope_offset: i32,
    #[doc = " KVC_LAYER_*"]
    pub flags: u32,
    #[doc = " 0 = the layer stores its own K and V. 1 + i = it stores nothing, and reads the K and V of layer i,\nan earlier layer of the same group: call attend without k and v, after the append of layer i.\ngroup, num_kv_heads, dims, dtype and rope_* must be equal in both. Give storage and scales in\nlayer i only"]
    pub kv_layer: i32,
    #[doc = " base of the angles, 1e-30..1e30; yarn: above 1. 0 = 10000"]
    pub rope_theta: f64,
    #[doc = " borrowed; nullable: none"]
    pub rope_scaling: *const kvc_rope_scaling,
    #[doc = " 1e-30..1e30; 0 = head_dim^-0.5. MLA: required, because the row's width does not imply it\n(DeepSeek-V3: 0.13523, docs/reference/mla.md)"]
    pub softmax_scale: f64,
    #[doc = " nullable; adopted by kvc_cache_create: the layer's page pool in the caller's\nmemory, [>= pages, 2, Hkv, page_size, D] with innermost stride 1 and any other\nstrides (so HND and NHD both fit). Index 0 of dim 1 is K, 1 is V. Needs D == Dv.\nMust be writable. No tensor may be given twice. Pools may interleave in memory,\nbut not overlap. Its deleter runs once, when the cache and all exported views of\nit are gone. Without a deleter, the caller keeps the memory until then.\ndocs/reference/storage.md has layouts"]
    pub kv_storage: *mut DLManagedTensorVersioned,
    #[doc = " nullable; adopted; K alone: [>= pages, Hkv, page_size, D]"]
    pub k_storage: *mut DLManagedTensorVersioned,
    #[doc = " nullable; adopted; V alone: [>= pages, Hkv, page_size, Dv]; given together with\nk_storage. (MLA and KVC_LAYER_KEYS_ONLY: only k_storage.) Storage has the layer's\ndtype; for float8 it may be uint8. int8, uint4 and float4 layers cannot have it,\nbecause their pages hold scales, which the library lays out"]
    pub v_storage: *mut DLManagedTensorVersioned,
    #[doc = " float8, float4: borrowed; [num_scales], each 1e-20..1e20; nullable if num_scales is 0"]
    pub k_scales: *const f32,
    #[doc = " the same for V (MLA: NULL, because V is part of K)"]
    pub v_scales: *const f32,
    #[doc = " float8, float4: 0 = every scale is 1; 1 = one scale for all kv heads; num_kv_heads = one for each. Other\ndtypes: 0"]
    pub num_scales: i32,
    #[doc = " recurrent: state tensors of the layer, 1..16. Else 0"]
    pub num_states: i32,
    #[doc = " recurrent: borrowed; [num_states], elements states[0].struct_size bytes apart; in a\nrecurrent layer all fields but group, num_states and states are 0. Else NULL"]
    pub states: *const kvc_state_config,
    #[doc = " MLA: the first latent_dim dims of the row are also V; 1..head_dim; else 0"]
    pub latent_dim: i32,
    #[doc = " 0"]
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_layer_config"][::core::mem::size_of::<kvc_layer_config>() - 136usize];
    ["Alignment of kvc_layer_config"][::core::mem::align_of::<kvc_layer_config>() - 8usize];
    ["Offset of field: kvc_layer_config::struct_size"][::core::mem::offset_of!(kvc_layer_config, struct_size) - 0usize];
    ["Offset of field: kvc_layer_config::group"][::core::mem::offset_of!(kvc_layer_config, group) - 4usize];
    ["Offset of field: kvc_layer_config::num_q_heads"][::core::mem::offset_of!(kvc_layer_config, num_q_heads) - 8usize];
    ["Offset of field: kvc_layer_config::num_kv_heads"]
        [::core::mem::offset_of!(kvc_layer_config, num_kv_heads) - 12usize];
    ["Offset of field: kvc_layer_config::head_dim"][::core::mem::offset_of!(kvc_layer_config, head_dim) - 16usize];
    ["Offset of field: kvc_layer_config::v_head_dim"][::core::mem::offset_of!(kvc_layer_config, v_head_dim) - 20usize];
    ["Offset of field: kvc_layer_config::dtype"][::core::mem::offset_of!(kvc_layer_config, dtype) - 24usize];
    ["Offset of field: kvc_layer_config::rope_mode"][::core::mem::offset_of!(kvc_layer_config, rope_mode) - 28usize];
    ["Offset of field: kvc_layer_config::rope_dim"][::core::mem::offset_of!(kvc_layer_config, rope_dim) - 32usize];
    ["Offset of field: kvc_layer_config::rope_offset"]
        [::core::mem::offset_of!(kvc_layer_config, rope_offset) - 36usize];
    ["Offset of field: kvc_layer_config::flags"][::core::mem::offset_of!(kvc_layer_config, flags) - 40usize];
    ["Offset of field: kvc_layer_config::kv_layer"][::core::mem::offset_of!(kvc_layer_config, kv_layer) - 44usize];
    ["Offset of field: kvc_layer_config::rope_theta"][::core::mem::offset_of!(kvc_layer_config, rope_theta) - 48usize];
    ["Offset of field: kvc_layer_config::rope_scaling"]
        [::core::mem::offset_of!(kvc_layer_config, rope_scaling) - 56usize];
    ["Offset of field: kvc_layer_config::softmax_scale"]
        [::core::mem::offset_of!(kvc_layer_config, softmax_scale) - 64usize];
    ["Offset of field: kvc_layer_config::kv_storage"][::core::mem::offset_of!(kvc_layer_config, kv_storage) - 72usize];
    ["Offset of field: kvc_layer_config::k_storage"][::core::mem::offset_of!(kvc_layer_config, k_storage) - 80usize];
    ["Offset of field: kvc_layer_config::v_storage"][::core::mem::offset_of!(kvc_layer_config, v_storage) - 88usize];
    ["Offset of field: kvc_layer_config::k_scales"][::core::mem::offset_of!(kvc_layer_config, k_scales) - 96usize];
    ["Offset of field: kvc_layer_config::v_scales"][::core::mem::offset_of!(kvc_layer_config, v_scales) - 104usize];
    ["Offset of field: kvc_layer_config::num_scales"][::core::mem::offset_of!(kvc_layer_config, num_scales) - 112usize];
    ["Offset of field: kvc_layer_config::num_states"][::core::mem::offset_of!(kvc_layer_config, num_states) - 116usize];
    ["Offset of field: kvc_layer_config::states"][::core::mem::offset_of!(kvc_layer_config, states) - 120usize];
    ["Offset of field: kvc_layer_config::latent_dim"][::core::mem::offset_of!(kvc_layer_config, latent_dim) - 128usize];
    ["Offset of field: kvc_layer_config::reserved"][::core::mem::offset_of!(kvc_layer_config, reserved) - 132usize];
};
#[doc = " K and V"]
pub const KVC_ROW_KV: kvc_row = 0;
#[doc = " multi-head latent attention (MLA): a token is one row [latent | rotary] for all heads, stored once.\nK is the row (num_kv_heads 1, head_dim its width), and V is its first latent_dim dims"]
pub const KVC_ROW_LATENT: kvc_row = 1;
#[doc = " recurrent: no keys. Each layer keeps state tensors of fixed size for a sequence, which a forward\nloads and stores (kvc_forward_load_state). A page holds one state of each layer of the group. Needs\nKVC_VISIBLE_ALL"]
pub const KVC_ROW_STATE: kvc_row = 2;
#[doc = " A group has a kind of row (what it stores for a token) and a visibility (which keys its queries see). Any kind of row goes\n with any visibility, except that KVC_ROW_STATE needs KVC_VISIBLE_ALL."]
pub type kvc_row = ::core::ffi::c_uint;
#[doc = " a full group: a query at position p sees keys 0..p. Memory grows with the sequence"]
pub const KVC_VISIBLE_ALL: kvc_visibility = 0;
#[doc = " a sliding group: the query sees keys p-w+1..p (w = window_tokens, its own key included). Pages\nthat lie wholly before the window and the rollback margin are freed when a forward ends"]
pub const KVC_VISIBLE_WINDOW: kvc_visibility = 1;
#[doc = " a chunked group: the query sees keys j <= p of its own chunk: j / c == p / c (c = chunk_tokens,\ninteger division). Pages of earlier chunks are freed in the same way"]
pub const KVC_VISIBLE_CHUNK: kvc_visibility = 2;
#[doc = " a cross group: the query sees all keys of the sequence's encoder sequence (image, audio, source\ntext). The encoder sequence has its own length, and is appended in its own forwards\n(kvc_batch.encoder_group). Forks share it, and truncate does not change it. Layers of the group\nmust have KVC_ROPE_NONE"]
pub const KVC_VISIBLE_ENCODER: kvc_visibility = 3;
pub type kvc_visibility = ::core::ffi::c_uint;
#[doc = " Every group needs a layer (else INVALID_ARGUMENT), because page tables without one would waste memory. A pipeline stage\n configures the layers that it runs, and their groups."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_group_config {
    pub struct_size: u32,
    #[doc = " KVC_ROW_*"]
    pub row: i32,
    #[doc = " KVC_VISIBLE_*"]
    pub visibility: i32,
    #[doc = " r > 1: the group stores one row for each r tokens, see above; 0 = 1"]
    pub tokens_per_row: i32,
    #[doc = " KVC_VISIBLE_WINDOW: w, 1..2^30; else 0"]
    pub window_tokens: i64,
    #[doc = " KVC_VISIBLE_CHUNK: c, 1..2^30, need not be a multiple of the page size; else 0"]
    pub chunk_tokens: i64,
    #[doc = " pages of this group's pool, below 2^31; 0 = from the cache's capacity. Recurrent: a sequence has\none page, one more in an open forward, and one for each checkpoint. While it has an uncommitted\ntree, it has one more, and one for each node whose state is kept. 0 = max_sequences * (2 +\nmax_checkpoints + max_draft_states)"]
    pub num_pages: i64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_group_config"][::core::mem::size_of::<kvc_group_config>() - 40usize];
    ["Alignment of kvc_group_config"][::core::mem::align_of::<kvc_group_config>() - 8usize];
    ["Offset of field: kvc_group_config::struct_size"][::core::mem::offset_of!(kvc_group_config, struct_size) - 0usize];
    ["Offset of field: kvc_group_config::row"][::core::mem::offset_of!(kvc_group_config, row) - 4usize];
    ["Offset of field: kvc_group_config::visibility"][::core::mem::offset_of!(kvc_group_config, visibility) - 8usize];
    ["Offset of field: kvc_group_config::tokens_per_row"]
        [::core::mem::offset_of!(kvc_group_config, tokens_per_row) - 12usize];
    ["Offset of field: kvc_group_config::window_tokens"]
        [::core::mem::offset_of!(kvc_group_config, window_tokens) - 16usize];
    ["Offset of field: kvc_group_config::chunk_tokens"]
        [::core::mem::offset_of!(kvc_group_config, chunk_tokens) - 24usize];
    ["Offset of field: kvc_group_config::num_pages"][::core::mem::offset_of!(kvc_group_config, num_pages) - 32usize];
};
#[doc = " no rollback margin: rollback_tokens 0 then means 0, not the default"]
pub const KVC_CACHE_NO_ROLLBACK: kvc_cache_flags = 1;
#[doc = " sequences may get streaming windows (kvc_seq_set_streaming). The cache then reserves\nbookkeeping for page lists that grow without end, and scratch for two partial results of each\nquery (over the sinks, and over the window). Needs a full group"]
pub const KVC_CACHE_STREAMING: kvc_cache_flags = 2;
#[doc = " never share: each row reads all of its keys"]
pub const KVC_CACHE_NO_PREFIX_SHARING: kvc_cache_flags = 4;
#[doc = " share wherever rows have a page in common"]
pub const KVC_CACHE_SHARE_ALL_PREFIXES: kvc_cache_flags = 8;
#[doc = " On one SIMD target, the bits of an output do not depend on the batch, the cut into steps, the threads, the page ids or\n forks. The partial result over each 1,024 keys is computed alone, by one kernel, and partial results are merged from\n left to right. Shared prefixes are not attended together. Decoding takes about twice as long:\n benchmarks/results/README.md lists figures."]
pub const KVC_CACHE_DETERMINISTIC: kvc_cache_flags = 16;
#[doc = " The cache has a prefix index: tokens that were published stay findable after their sequence is removed (section 12)."]
pub const KVC_CACHE_PREFIX_INDEX: kvc_cache_flags = 32;
#[doc = " A step, a fork and an attach clear the K and V of pages that they take, before anything else reads them. So no kernel,\n not even one of the engine, reads another sequence's bytes in a new page. It costs one write of each new page. Needs\n pools (KVC_STORAGE_OWN)"]
pub const KVC_CACHE_ZERO_ON_FREE: kvc_cache_flags = 64;
pub type kvc_cache_flags = ::core::ffi::c_uint;
#[doc = " the least recently used one. But for each use after the first, three at most, the time of a\nprefix's last use counts as later by half of the usual age at eviction. So prefixes that\nwere used once are evicted first"]
pub const KVC_PREFIX_POLICY_REUSE: kvc_prefix_policy = 0;
#[doc = " the least recently used one"]
pub const KVC_PREFIX_POLICY_LRU: kvc_prefix_policy = 1;
#[doc = " Which idle prefix the prefix index evicts first, among those of equal priority. A prefix is never evicted before a longer\n one that continues it. benchmarks/results/README.md has hit rates of both policies."]
pub type kvc_prefix_policy = ::core::ffi::c_uint;
#[doc = " the cache has page pools for every layer, in its own memory or in the caller's\n(kvc_layer_config.kv_storage)"]
pub const KVC_STORAGE_OWN: kvc_storage = 0;
#[doc = " tables only, for engines with pools and kernels of their own. Sequences, pages and steps work as\nalways, but the cache has no K and V. kvc_cache_take_copies returns the copies of tokens that the\nengine must make. append, attend, exports and imports are UNSUPPORTED. The layers' config gives the\nsize of a page (one layer for each group is enough). Recurrent states are in the cache, so\nkvc_forward_load_state works"]
pub const KVC_STORAGE_NONE: kvc_storage = 1;
pub type kvc_storage = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_cache_config {
    pub struct_size: u32,
    #[doc = " KVC_CACHE_*"]
    pub flags: u32,
    #[doc = " borrowed; [num_layers], elements layers[0].struct_size bytes apart"]
    pub layers: *const kvc_layer_config,
    #[doc = " borrowed; [num_groups], likewise; nullable: one full group"]
    pub groups: *const kvc_group_config,
    #[doc = " 1..4096"]
    pub num_layers: i32,
    #[doc = " 1..64; 0 with groups == NULL"]
    pub num_groups: i32,
    #[doc = " tokens a page, 1..65536; 0 = 16"]
    pub page_size: i32,
    #[doc = " 1..1048575; 0 = 64"]
    pub max_sequences: i32,
    #[doc = " tokens of one forward, 1..1048576; 0 = 2048"]
    pub max_batch_tokens: i32,
    #[doc = " 1..64; 0 = 2"]
    pub max_open_forwards: i32,
    #[doc = " tokens kept before every window, streaming windows too, so that truncate or fork can drop\nup to this many tokens (rejected drafts). At most 2^30; 0 = max_tree_nodes"]
    pub rollback_tokens: i64,
    #[doc = " tokens that a full group holds, rounded up to pages"]
    pub capacity_tokens: i64,
    #[doc = " the same in pages"]
    pub capacity_pages: i64,
    #[doc = " all pools of all layers together fit in this many bytes"]
    pub capacity_bytes: i64,
    #[doc = " uncommitted tree nodes of a sequence since its last commit, 1..1024; 0 = 64"]
    pub max_tree_nodes: i32,
    #[doc = " checkpoints of one sequence, 1..1024; 0 = 1. Only with a recurrent group"]
    pub max_checkpoints: i32,
    #[doc = " KVC_STORAGE_*"]
    pub storage: i32,
    #[doc = " KVC_CACHE_PREFIX_INDEX: KVC_PREFIX_POLICY_*. Else 0"]
    pub prefix_policy: i32,
    #[doc = " KVC_CACHE_PREFIX_INDEX: the largest number of pages of tokens that the index holds in\neach group, below 2^31; 0 = the pages of the largest group. Else 0"]
    pub prefix_pages: i64,
    #[doc = " KVC_CACHE_PREFIX_INDEX with a recurrent group: the largest number of positions whose\nstates the index holds, below 2^31; 0 = max_sequences. A recurrent group without\nnum_pages gets this many pages in addition. Else 0"]
    pub prefix_checkpoints: i64,
    #[doc = " borrowed; nullable; [32]: names the model (weights, quantisation, tokenizer), as in\nkvc_page_keys_args. Without it, the pages of this cache have no keys that others could\nuse, so there are no events"]
    pub fingerprint: *const u8,
    #[doc = " KVC_CACHE_PREFIX_INDEX and a fingerprint: events of the index that the cache keeps for readers,\nbelow 2^31; 0 = none. Else 0"]
    pub events_capacity: i64,
    #[doc = " how many nodes of an uncommitted tree, from its first on, keep their recurrent states,\nso that each of them can be committed; 0..63, at most max_tree_nodes. Only with a\nrecurrent group"]
    pub max_draft_states: i32,
    #[doc = " 0"]
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_cache_config"][::core::mem::size_of::<kvc_cache_config>() - 136usize];
    ["Alignment of kvc_cache_config"][::core::mem::align_of::<kvc_cache_config>() - 8usize];
    ["Offset of field: kvc_cache_config::struct_size"][::core::mem::offset_of!(kvc_cache_config, struct_size) - 0usize];
    ["Offset of field: kvc_cache_config::flags"][::core::mem::offset_of!(kvc_cache_config, flags) - 4usize];
    ["Offset of field: kvc_cache_config::layers"][::core::mem::offset_of!(kvc_cache_config, layers) - 8usize];
    ["Offset of field: kvc_cache_config::groups"][::core::mem::offset_of!(kvc_cache_config, groups) - 16usize];
    ["Offset of field: kvc_cache_config::num_layers"][::core::mem::offset_of!(kvc_cache_config, num_layers) - 24usize];
    ["Offset of field: kvc_cache_config::num_groups"][::core::mem::offset_of!(kvc_cache_config, num_groups) - 28usize];
    ["Offset of field: kvc_cache_config::page_size"][::core::mem::offset_of!(kvc_cache_config, page_size) - 32usize];
    ["Offset of field: kvc_cache_config::max_sequences"]
        [::core::mem::offset_of!(kvc_cache_config, max_sequences) - 36usize];
    ["Offset of field: kvc_cache_config::max_batch_tokens"]
        [::core::mem::offset_of!(kvc_cache_config, max_batch_tokens) - 40usize];
    ["Offset of field: kvc_cache_config::max_open_forwards"]
        [::core::mem::offset_of!(kvc_cache_config, max_open_forwards) - 44usize];
    ["Offset of field: kvc_cache_config::rollback_tokens"]
        [::core::mem::offset_of!(kvc_cache_config, rollback_tokens) - 48usize];
    ["Offset of field: kvc_cache_config::capacity_tokens"]
        [::core::mem::offset_of!(kvc_cache_config, capacity_tokens) - 56usize];
    ["Offset of field: kvc_cache_config::capacity_pages"]
        [::core::mem::offset_of!(kvc_cache_config, capacity_pages) - 64usize];
    ["Offset of field: kvc_cache_config::capacity_bytes"]
        [::core::mem::offset_of!(kvc_cache_config, capacity_bytes) - 72usize];
    ["Offset of field: kvc_cache_config::max_tree_nodes"]
        [::core::mem::offset_of!(kvc_cache_config, max_tree_nodes) - 80usize];
    ["Offset of field: kvc_cache_config::max_checkpoints"]
        [::core::mem::offset_of!(kvc_cache_config, max_checkpoints) - 84usize];
    ["Offset of field: kvc_cache_config::storage"][::core::mem::offset_of!(kvc_cache_config, storage) - 88usize];
    ["Offset of field: kvc_cache_config::prefix_policy"]
        [::core::mem::offset_of!(kvc_cache_config, prefix_policy) - 92usize];
    ["Offset of field: kvc_cache_config::prefix_pages"]
        [::core::mem::offset_of!(kvc_cache_config, prefix_pages) - 96usize];
    ["Offset of field: kvc_cache_config::prefix_checkpoints"]
        [::core::mem::offset_of!(kvc_cache_config, prefix_checkpoints) - 104usize];
    ["Offset of field: kvc_cache_config::fingerprint"]
        [::core::mem::offset_of!(kvc_cache_config, fingerprint) - 112usize];
    ["Offset of field: kvc_cache_config::events_capacity"]
        [::core::mem::offset_of!(kvc_cache_config, events_capacity) - 120usize];
    ["Offset of field: kvc_cache_config::max_draft_states"]
        [::core::mem::offset_of!(kvc_cache_config, max_draft_states) - 128usize];
    ["Offset of field: kvc_cache_config::reserved"][::core::mem::offset_of!(kvc_cache_config, reserved) - 132usize];
};
#[doc = " What a cache with a given config would need."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_estimate {
    pub struct_size: u32,
    pub reserved: u32,
    #[doc = " pages (all groups: their sum)"]
    pub num_pages: i64,
    #[doc = " bytes of one page in all layers of the group (all groups: 0)"]
    pub page_bytes: i64,
    #[doc = " bytes that one token takes in all layers (of the group) while it is stored"]
    pub token_bytes: i64,
    #[doc = " pools; with KVC_STORAGE_NONE those of recurrent groups alone"]
    pub storage_bytes: i64,
    #[doc = " host memory for page tables and sequences"]
    pub bookkeeping_bytes: i64,
    #[doc = " host and device memory for the largest batches (all groups only)"]
    pub scratch_bytes: i64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_estimate"][::core::mem::size_of::<kvc_estimate>() - 56usize];
    ["Alignment of kvc_estimate"][::core::mem::align_of::<kvc_estimate>() - 8usize];
    ["Offset of field: kvc_estimate::struct_size"][::core::mem::offset_of!(kvc_estimate, struct_size) - 0usize];
    ["Offset of field: kvc_estimate::reserved"][::core::mem::offset_of!(kvc_estimate, reserved) - 4usize];
    ["Offset of field: kvc_estimate::num_pages"][::core::mem::offset_of!(kvc_estimate, num_pages) - 8usize];
    ["Offset of field: kvc_estimate::page_bytes"][::core::mem::offset_of!(kvc_estimate, page_bytes) - 16usize];
    ["Offset of field: kvc_estimate::token_bytes"][::core::mem::offset_of!(kvc_estimate, token_bytes) - 24usize];
    ["Offset of field: kvc_estimate::storage_bytes"][::core::mem::offset_of!(kvc_estimate, storage_bytes) - 32usize];
    ["Offset of field: kvc_estimate::bookkeeping_bytes"]
        [::core::mem::offset_of!(kvc_estimate, bookkeeping_bytes) - 40usize];
    ["Offset of field: kvc_estimate::scratch_bytes"][::core::mem::offset_of!(kvc_estimate, scratch_bytes) - 48usize];
};
#[doc = " Id of a sequence: opaque, never 0, below 2^63. Using a stale id is an error, never undefined behaviour."]
pub type kvc_seq = u64;
#[doc = " all tokens that a sequence holds now are sinks: s = max(sink_tokens, its length). Not\nallowed where the window is 0"]
pub const KVC_STREAMING_PREFIX_IS_SINK: kvc_streaming_flags = 1;
pub type kvc_streaming_flags = ::core::ffi::c_uint;
pub const KVC_ROPE_SET_SHORT: kvc_rope_set = 0;
pub const KVC_ROPE_SET_LONG: kvc_rope_set = 1;
pub type kvc_rope_set = ::core::ffi::c_uint;
#[doc = " Id of an open forward: opaque, never 0, below 2^63."]
pub type kvc_forward = u64;
#[doc = " the node follows the sequence's last committed token"]
pub const KVC_TREE_ROOT: kvc_tree_parent = -1;
#[doc = " no node: its row appends plain tokens"]
pub const KVC_TREE_NONE: kvc_tree_parent = -2;
pub type kvc_tree_parent = ::core::ffi::c_int;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_batch {
    pub struct_size: u32,
    #[doc = " rows of the batch, 0..max_sequences"]
    pub num_sequences: i32,
    #[doc = " [num_sequences], distinct; 0 = an inert row, whose tokens are padding"]
    pub sequences: *const kvc_seq,
    #[doc = " [num_sequences], new tokens of each row, >= 1; an inert row may have 0"]
    pub append_lengths: *const i32,
    #[doc = " the forward covers layers [layer_begin, layer_end); both 0 = all. Every layer in this\nrange that stores K and V must be appended before kvc_forward_end. A pipeline stage, or\na draft that exits early, gives its own range. The other layers then lack the forward's\ntokens. Until truncate drops these tokens, those layers do not export them, and a range\nwith such a layer is refused (ORDER)"]
    pub layer_begin: i32,
    pub layer_end: i32,
    #[doc = " nullable: no trees. [T]: the parent node of each new token, or KVC_TREE_ROOT; in a plain\nrow KVC_TREE_NONE for all tokens (see kvc_seq_commit). Ignored in inert rows"]
    pub tree_parents: *const i32,
    #[doc = " nullable: no spans. [T]: adjacent tokens of one row with the same id > 0 see each other,\nlater ones too (an image within a text); 0 = no span. Windows and chunks stay as they\nare: a query sees no token of its span that its window or chunk hides. A span must be\nwhole within one forward. Ignored in inert rows"]
    pub span_ids: *const i32,
    #[doc = " 0 = the tokens belong to the sequences. 1 + the index of a cross group: they are appended\nto the encoder sequences in that group. Its layers accept kvc_forward_append only, and\nthe lengths of the sequences stay the same"]
    pub encoder_group: i32,
    #[doc = " 0"]
    pub reserved: u32,
    #[doc = " 0 = none: the forward gets its own id. Else a graph from kvc_graph_create: the forward\nis open in it, and has the graph's id"]
    pub graph: kvc_forward,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_batch"][::core::mem::size_of::<kvc_batch>() - 64usize];
    ["Alignment of kvc_batch"][::core::mem::align_of::<kvc_batch>() - 8usize];
    ["Offset of field: kvc_batch::struct_size"][::core::mem::offset_of!(kvc_batch, struct_size) - 0usize];
    ["Offset of field: kvc_batch::num_sequences"][::core::mem::offset_of!(kvc_batch, num_sequences) - 4usize];
    ["Offset of field: kvc_batch::sequences"][::core::mem::offset_of!(kvc_batch, sequences) - 8usize];
    ["Offset of field: kvc_batch::append_lengths"][::core::mem::offset_of!(kvc_batch, append_lengths) - 16usize];
    ["Offset of field: kvc_batch::layer_begin"][::core::mem::offset_of!(kvc_batch, layer_begin) - 24usize];
    ["Offset of field: kvc_batch::layer_end"][::core::mem::offset_of!(kvc_batch, layer_end) - 28usize];
    ["Offset of field: kvc_batch::tree_parents"][::core::mem::offset_of!(kvc_batch, tree_parents) - 32usize];
    ["Offset of field: kvc_batch::span_ids"][::core::mem::offset_of!(kvc_batch, span_ids) - 40usize];
    ["Offset of field: kvc_batch::encoder_group"][::core::mem::offset_of!(kvc_batch, encoder_group) - 48usize];
    ["Offset of field: kvc_batch::reserved"][::core::mem::offset_of!(kvc_batch, reserved) - 52usize];
    ["Offset of field: kvc_batch::graph"][::core::mem::offset_of!(kvc_batch, graph) - 56usize];
};
#[doc = " k is already as the cache stores it, and is not rotated. For a quantised layer, k and v may then\nboth be stored bytes, of its dtype or uint8 (uint4: D / 2 bytes a row; float4: D / 2 + D / 16)"]
pub const KVC_APPEND_AS_STORED: kvc_append_flags = 1;
pub type kvc_append_flags = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_append_args {
    pub struct_size: u32,
    #[doc = " KVC_APPEND_*"]
    pub flags: u32,
    #[doc = " borrowed; [>= T, Hkv, D] float32, float16 or bfloat16; innermost stride 1"]
    pub k: *const DLTensor,
    #[doc = " borrowed; [>= T, Hkv, Dv], as k. KVC_LAYER_KEYS_ONLY: NULL. MLA: NULL, and k has whole rows;\nor v has the latent parts [>= T, 1, latent_dim], and k the rotary parts\n[>= T, 1, D - latent_dim]"]
    pub v: *const DLTensor,
    #[doc = " nullable: the layer's rope fields and the tokens' positions give the angles. Borrowed;\n[>= T, 2, rope_dim / 2] float32, compact: cos, then sin of each pair's angle, times any\nattention factor. For positions that only the caller has (M-RoPE, dynamic NTK:\ndocs/reference/rope.md). Needs KVC_ROPE_ON_APPEND. Give the layer's attend the same\ntable"]
    pub rope_cos_sin: *const DLTensor,
    #[doc = " borrowed; [>= T, Hkv] float32: the scales of stored bytes of int8 and uint4. Else NULL: stored\nbytes of float8 and float4 use the layer's scales"]
    pub k_scale: *const DLTensor,
    #[doc = " the same for v"]
    pub v_scale: *const DLTensor,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_append_args"][::core::mem::size_of::<kvc_append_args>() - 48usize];
    ["Alignment of kvc_append_args"][::core::mem::align_of::<kvc_append_args>() - 8usize];
    ["Offset of field: kvc_append_args::struct_size"][::core::mem::offset_of!(kvc_append_args, struct_size) - 0usize];
    ["Offset of field: kvc_append_args::flags"][::core::mem::offset_of!(kvc_append_args, flags) - 4usize];
    ["Offset of field: kvc_append_args::k"][::core::mem::offset_of!(kvc_append_args, k) - 8usize];
    ["Offset of field: kvc_append_args::v"][::core::mem::offset_of!(kvc_append_args, v) - 16usize];
    ["Offset of field: kvc_append_args::rope_cos_sin"]
        [::core::mem::offset_of!(kvc_append_args, rope_cos_sin) - 24usize];
    ["Offset of field: kvc_append_args::k_scale"][::core::mem::offset_of!(kvc_append_args, k_scale) - 32usize];
    ["Offset of field: kvc_append_args::v_scale"][::core::mem::offset_of!(kvc_append_args, v_scale) - 40usize];
};
#[doc = " a query sees every key of its row, also those of later tokens. A window still limits the\nfirst key, and a chunk the first and the last. Nodes of a tree see their ancestors only"]
pub const KVC_ATTEND_NON_CAUSAL: kvc_attend_flags = 1;
#[doc = " only keys of earlier steps"]
pub const KVC_ATTEND_PAST: kvc_attend_flags = 2;
#[doc = " only keys of this step's tokens. To compute the two parts apart, call attend twice for a\nlayer, and merge the results by their LSE (kvc_merge_states)"]
pub const KVC_ATTEND_SELF: kvc_attend_flags = 4;
#[doc = " slope * (p_q - p_k) is subtracted from scores, so keys after the query score higher. It\nmatters where queries see such keys: with NON_CAUSAL, and in spans"]
pub const KVC_ATTEND_ALIBI_SIGNED: kvc_attend_flags = 8;
#[doc = " rel_bias adds 0 at distances that it has no entry for"]
pub const KVC_ATTEND_REL_BIAS_ZERO: kvc_attend_flags = 16;
#[doc = " this layer ignores the step's spans"]
pub const KVC_ATTEND_NO_SPANS: kvc_attend_flags = 32;
#[doc = " the window, or chunk, of every query begins where the window, or chunk, of the row's\nfirst new token begins. So with NON_CAUSAL all queries of a step see the same keys.\nUNSUPPORTED in steps with trees"]
pub const KVC_ATTEND_STEP_WINDOW: kvc_attend_flags = 64;
pub type kvc_attend_flags = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_attend_args {
    pub struct_size: u32,
    #[doc = " KVC_ATTEND_*; PAST and SELF exclude each other"]
    pub flags: u32,
    #[doc = " borrowed; [>= T, Hq, D] float32, float16 or bfloat16; innermost stride 1 (MLA: see w_uk)"]
    pub q: *const DLTensor,
    #[doc = " nullable, with v: the layer was appended already, reads another layer's K and V\n(kvc_layer_config.kv_layer), or is a cross layer. Borrowed; as kvc_append_args"]
    pub k: *const DLTensor,
    #[doc = " nullable, with k; as kvc_append_args.v (MLA: nullable alone)"]
    pub v: *const DLTensor,
    #[doc = " borrowed, its data is written; [>= T, Hq, Dv], any of the three dtypes. Must not overlap q, k or v.\nTokens of inert rows, and rows from T on, are not written"]
    pub out: *const DLTensor,
    #[doc = " nullable; borrowed, written; [>= T, Hq] float32: natural logarithm of the sum of exponentials of\nthe scores, the sink's included; rows as in out"]
    pub lse: *const DLTensor,
    #[doc = " 1e-30..1e30; 0 = the layer's"]
    pub softmax_scale: f64,
    #[doc = " scores become softcap * tanh(score / softcap); 1e-6..1e30; 0 = none"]
    pub softcap: f64,
    #[doc = " nullable; borrowed; [Hq] float32: slope * |p_q - p_k| is subtracted from scores (see\nKVC_ATTEND_ALIBI_SIGNED)"]
    pub alibi_slopes: *const DLTensor,
    #[doc = " nullable; borrowed; [Hq] float32: a logit of each head that takes part in the softmax, without a\nvalue. It is neither scaled nor capped. If a layer is computed in two parts, give it to one of\nthem"]
    pub sinks: *const DLTensor,
    #[doc = " nullable; as kvc_append_args.rope_cos_sin, for q, and for k if it is given. UNSUPPORTED in\na full group with a sequence longer than its streaming window (in a deterministic cache:\nwith any sequence that has sinks), because q is rotated twice there"]
    pub rope_cos_sin: *const DLTensor,
    #[doc = " nullable, with w_uv. Borrowed; [Hq, Dn, latent_dim] float32, float16 or bfloat16; innermost\nstride 1; Dn 1..1152 - R"]
    pub w_uk: *const DLTensor,
    #[doc = " nullable, with w_uk. Borrowed; [Hq, Dv, latent_dim], as w_uk; Dv 1..1024"]
    pub w_uv: *const DLTensor,
    #[doc = " nullable: no lists. Borrowed; [>= T, 1 or Hkv, k] int32, rows as in q, innermost stride 1: the list\nof each query, for all heads or for each kv head. k * index_block <= KVC_MAX_LISTED_KEYS"]
    pub indices: *const DLTensor,
    #[doc = " b: an entry i is the tokens [i * b, (i + 1) * b). Any b from 1 on; 0 = 1"]
    pub index_block: i32,
    #[doc = " 0"]
    pub reserved: i32,
    #[doc = " nullable; borrowed; [Hq, E] or [>= T, Hq, E] float32, innermost stride 1: the head's entry at\nd = p_q - p_k is added to the score. E is 1 or more. A larger d gets the last entry, and a\nnegative d the first (but see KVC_ATTEND_REL_BIAS_ZERO)"]
    pub rel_bias: *const DLTensor,
    #[doc = " nullable; borrowed; [>= num_sequences, >= keys, 1 or Hkv] float32: entry [r, j] is added to\nscores of key j in row r. Keys are numbered as in indices. `keys` is the largest number of\ntokens, new ones included, of the rows that have queries"]
    pub key_bias: *const DLTensor,
    #[doc = " nullable; borrowed; [>= T, >= keys] or [>= T, 1 or Hkv, >= keys] bool or uint8, innermost stride 1: 0\nhides key j from the query. A mask cannot show a key that the layer hides. With NON_CAUSAL, in a\nlayer without window and chunks, the mask alone decides what a query sees. Rows and keys as in q\nand key_bias"]
    pub mask: *const DLTensor,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_attend_args"][::core::mem::size_of::<kvc_attend_args>() - 144usize];
    ["Alignment of kvc_attend_args"][::core::mem::align_of::<kvc_attend_args>() - 8usize];
    ["Offset of field: kvc_attend_args::struct_size"][::core::mem::offset_of!(kvc_attend_args, struct_size) - 0usize];
    ["Offset of field: kvc_attend_args::flags"][::core::mem::offset_of!(kvc_attend_args, flags) - 4usize];
    ["Offset of field: kvc_attend_args::q"][::core::mem::offset_of!(kvc_attend_args, q) - 8usize];
    ["Offset of field: kvc_attend_args::k"][::core::mem::offset_of!(kvc_attend_args, k) - 16usize];
    ["Offset of field: kvc_attend_args::v"][::core::mem::offset_of!(kvc_attend_args, v) - 24usize];
    ["Offset of field: kvc_attend_args::out"][::core::mem::offset_of!(kvc_attend_args, out) - 32usize];
    ["Offset of field: kvc_attend_args::lse"][::core::mem::offset_of!(kvc_attend_args, lse) - 40usize];
    ["Offset of field: kvc_attend_args::softmax_scale"]
        [::core::mem::offset_of!(kvc_attend_args, softmax_scale) - 48usize];
    ["Offset of field: kvc_attend_args::softcap"][::core::mem::offset_of!(kvc_attend_args, softcap) - 56usize];
    ["Offset of field: kvc_attend_args::alibi_slopes"]
        [::core::mem::offset_of!(kvc_attend_args, alibi_slopes) - 64usize];
    ["Offset of field: kvc_attend_args::sinks"][::core::mem::offset_of!(kvc_attend_args, sinks) - 72usize];
    ["Offset of field: kvc_attend_args::rope_cos_sin"]
        [::core::mem::offset_of!(kvc_attend_args, rope_cos_sin) - 80usize];
    ["Offset of field: kvc_attend_args::w_uk"][::core::mem::offset_of!(kvc_attend_args, w_uk) - 88usize];
    ["Offset of field: kvc_attend_args::w_uv"][::core::mem::offset_of!(kvc_attend_args, w_uv) - 96usize];
    ["Offset of field: kvc_attend_args::indices"][::core::mem::offset_of!(kvc_attend_args, indices) - 104usize];
    ["Offset of field: kvc_attend_args::index_block"][::core::mem::offset_of!(kvc_attend_args, index_block) - 112usize];
    ["Offset of field: kvc_attend_args::reserved"][::core::mem::offset_of!(kvc_attend_args, reserved) - 116usize];
    ["Offset of field: kvc_attend_args::rel_bias"][::core::mem::offset_of!(kvc_attend_args, rel_bias) - 120usize];
    ["Offset of field: kvc_attend_args::key_bias"][::core::mem::offset_of!(kvc_attend_args, key_bias) - 128usize];
    ["Offset of field: kvc_attend_args::mask"][::core::mem::offset_of!(kvc_attend_args, mask) - 136usize];
};
#[doc = " tokens that a list may name"]
pub const KVC_MAX_LISTED_KEYS: _bindgen_ty_1 = 65536;
pub type _bindgen_ty_1 = ::core::ffi::c_uint;
#[doc = " a token's score is the sum over heads h of weights[h] * max(0, q[h].k): one list a query"]
pub const KVC_SELECT_RELU_SUM: kvc_select_rule = 0;
#[doc = " a token's score in head h is q[h].k: a list for each head"]
pub const KVC_SELECT_EACH_HEAD: kvc_select_rule = 1;
pub type kvc_select_rule = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_select_args {
    pub struct_size: u32,
    #[doc = " KVC_SELECT_*"]
    pub rule: i32,
    #[doc = " borrowed; [>= T, Hq, D] float32, float16 or bfloat16; innermost stride 1. Head h scores the keys of\nhead h / (Hq / Hkv)"]
    pub q: *const DLTensor,
    #[doc = " KVC_SELECT_RELU_SUM: borrowed; [>= T, Hq] float32, of any sign; nullable: all 1. Else NULL"]
    pub weights: *const DLTensor,
    #[doc = " borrowed, written; [>= T, lists, k] int32, innermost stride 1; lists is 1, or Hq with\nKVC_SELECT_EACH_HEAD. k * index_block <= KVC_MAX_LISTED_KEYS. It must not overlap another\ntensor. Tokens of inert rows, and rows from T on, are not written"]
    pub indices: *const DLTensor,
    #[doc = " nullable: all tokens that the query sees. Borrowed; [>= T, 1 or lists, n] int32, as\nkvc_attend_args.indices: only tokens that it names are scored"]
    pub candidates: *const DLTensor,
    #[doc = " nullable; as kvc_append_args.rope_cos_sin, for q"]
    pub rope_cos_sin: *const DLTensor,
    #[doc = " b: an entry i is the tokens [i * b, (i + 1) * b), and its score is the largest of those that the\nquery sees. Any b from 1 on; 0 = 1"]
    pub index_block: i32,
    #[doc = " the same for entries of candidates; 0 = 1"]
    pub candidate_block: i32,
    #[doc = " this many entries at the start of the sequence are always chosen. They count towards k"]
    pub first_blocks: i32,
    #[doc = " the same for this many entries that end with the one of the query's own token. first_blocks +\nlast_blocks is at most k"]
    pub last_blocks: i32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_select_args"][::core::mem::size_of::<kvc_select_args>() - 64usize];
    ["Alignment of kvc_select_args"][::core::mem::align_of::<kvc_select_args>() - 8usize];
    ["Offset of field: kvc_select_args::struct_size"][::core::mem::offset_of!(kvc_select_args, struct_size) - 0usize];
    ["Offset of field: kvc_select_args::rule"][::core::mem::offset_of!(kvc_select_args, rule) - 4usize];
    ["Offset of field: kvc_select_args::q"][::core::mem::offset_of!(kvc_select_args, q) - 8usize];
    ["Offset of field: kvc_select_args::weights"][::core::mem::offset_of!(kvc_select_args, weights) - 16usize];
    ["Offset of field: kvc_select_args::indices"][::core::mem::offset_of!(kvc_select_args, indices) - 24usize];
    ["Offset of field: kvc_select_args::candidates"][::core::mem::offset_of!(kvc_select_args, candidates) - 32usize];
    ["Offset of field: kvc_select_args::rope_cos_sin"]
        [::core::mem::offset_of!(kvc_select_args, rope_cos_sin) - 40usize];
    ["Offset of field: kvc_select_args::index_block"][::core::mem::offset_of!(kvc_select_args, index_block) - 48usize];
    ["Offset of field: kvc_select_args::candidate_block"]
        [::core::mem::offset_of!(kvc_select_args, candidate_block) - 52usize];
    ["Offset of field: kvc_select_args::first_blocks"]
        [::core::mem::offset_of!(kvc_select_args, first_blocks) - 56usize];
    ["Offset of field: kvc_select_args::last_blocks"][::core::mem::offset_of!(kvc_select_args, last_blocks) - 60usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_merge_args {
    pub struct_size: u32,
    #[doc = " 1 or more"]
    pub num_parts: i32,
    #[doc = " [num_parts], borrowed; each [T, H, Dv] float32, float16 or bfloat16; innermost\nstride 1"]
    pub outputs: *const *const DLTensor,
    #[doc = " [num_parts], borrowed; each [T, H] float32"]
    pub lses: *const *const DLTensor,
    #[doc = " borrowed, written; [T, H, Dv] of any of the three dtypes: T, H and Dv are its\nshape. It may be outputs[0] itself; must not overlap other parts"]
    pub out: *const DLTensor,
    #[doc = " nullable; borrowed, written; [T, H] float32; it may be lses[0] itself"]
    pub lse: *const DLTensor,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_merge_args"][::core::mem::size_of::<kvc_merge_args>() - 40usize];
    ["Alignment of kvc_merge_args"][::core::mem::align_of::<kvc_merge_args>() - 8usize];
    ["Offset of field: kvc_merge_args::struct_size"][::core::mem::offset_of!(kvc_merge_args, struct_size) - 0usize];
    ["Offset of field: kvc_merge_args::num_parts"][::core::mem::offset_of!(kvc_merge_args, num_parts) - 4usize];
    ["Offset of field: kvc_merge_args::outputs"][::core::mem::offset_of!(kvc_merge_args, outputs) - 8usize];
    ["Offset of field: kvc_merge_args::lses"][::core::mem::offset_of!(kvc_merge_args, lses) - 16usize];
    ["Offset of field: kvc_merge_args::out"][::core::mem::offset_of!(kvc_merge_args, out) - 24usize];
    ["Offset of field: kvc_merge_args::lse"][::core::mem::offset_of!(kvc_merge_args, lse) - 32usize];
};
#[doc = " The position of each token of an open forward, and the last token of each row. All pointers, those of the tensors' shapes\n and strides too, are borrowed from the library until the forward closes. In a graph they are borrowed until\n kvc_graph_destroy, and the arrays have the graph's capacity in place of T and num_sequences: position 0 and last row -1\n for entries that the step does not use."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_forward_info {
    pub struct_size: u32,
    #[doc = " rows of the batch, inert rows included"]
    pub num_sequences: i32,
    #[doc = " T"]
    pub num_tokens: i64,
    #[doc = " [T]: position of each token in its sequence (tree nodes: length + depth); 0 in\ninert rows"]
    pub positions_host: *const i32,
    #[doc = " [num_sequences]: index in [0, T) of each row's last token; -1 if it has none"]
    pub last_rows_host: *const i32,
    #[doc = " the same arrays on the context's device, int32 [T]"]
    pub positions: DLTensor,
    #[doc = " int32 [num_sequences]"]
    pub last_rows: DLTensor,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_forward_info"][::core::mem::size_of::<kvc_forward_info>() - 128usize];
    ["Alignment of kvc_forward_info"][::core::mem::align_of::<kvc_forward_info>() - 8usize];
    ["Offset of field: kvc_forward_info::struct_size"][::core::mem::offset_of!(kvc_forward_info, struct_size) - 0usize];
    ["Offset of field: kvc_forward_info::num_sequences"]
        [::core::mem::offset_of!(kvc_forward_info, num_sequences) - 4usize];
    ["Offset of field: kvc_forward_info::num_tokens"][::core::mem::offset_of!(kvc_forward_info, num_tokens) - 8usize];
    ["Offset of field: kvc_forward_info::positions_host"]
        [::core::mem::offset_of!(kvc_forward_info, positions_host) - 16usize];
    ["Offset of field: kvc_forward_info::last_rows_host"]
        [::core::mem::offset_of!(kvc_forward_info, last_rows_host) - 24usize];
    ["Offset of field: kvc_forward_info::positions"][::core::mem::offset_of!(kvc_forward_info, positions) - 32usize];
    ["Offset of field: kvc_forward_info::last_rows"][::core::mem::offset_of!(kvc_forward_info, last_rows) - 80usize];
};
#[doc = " Graph mode is for steps whose calls are recorded once and replayed, by a CUDA graph, or by a compiled program that holds\n its arguments as constants.\n\n   kvc_graph_config config;  kvc_graph_config_init(&config);                  // once\n   config.max_sequences = config.max_tokens = 64;                             // decode, up to 64 rows\n   if (kvc_graph_create(cache, &config, &graph, &error)) return report(error.message);\n   batch.graph = graph;\n   for (;;) {                                                                 // each step\n     ... this step's batch.sequences, batch.append_lengths, batch.num_sequences ...\n     if (kvc_forward_begin(cache, &batch, NULL, &step, &error)) return report(error.message);\n     replay();        // recorded: the model, with kvc_forward_attend(cache, graph, layer, &args[layer], &error) in it\n     kvc_forward_end(cache, graph, &error);\n   }\n\n   Ids        A forward in a graph has the graph's id, in every step. A call with that id acts on the forward that is open in\n              the graph. While none is open, a replay is stale: such calls return KVC_ERROR_STALE and touch nothing.\n   Addresses  kvc_forward_get_info and kvc_forward_tables give the same addresses in every step, in shapes of the graph's\n              capacity. Entries that a step does not use are inert: position 0, slot -1, last row -1, table rows without\n              keys. Call kvc_forward_tables in each step to fill tables. Until then, and between steps, their generation word\n              is 0.\n   Tensors    Tensors of recorded calls have max_tokens rows, those of states max_sequences. Rows beyond those of the step\n              are not written.\n   CUDA       Run one step without a capture first. Then capture append, attend, load_state and store_state between a begin\n              and an end. All other calls must be outside (ORDER). kvc_forward_end checks that each layer in range was appended\n              in the graph at least once. It cannot see what a replay ran, so replay all captured layers before it. A\n              replay while no forward is open writes nothing. Use one stream for all forwards of a graph.\n\n A graph has buffers for one forward, which does not count towards max_open_forwards. It serves recordings of any size up to\n its capacity, so one graph is enough for a server that records several batch sizes."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_graph_config {
    pub struct_size: u32,
    #[doc = " 0"]
    pub flags: u32,
    #[doc = " rows of a step, at most the cache's max_sequences; 0 = as many"]
    pub max_sequences: i32,
    #[doc = " tokens of a step, at most the cache's max_batch_tokens; 0 = as many"]
    pub max_tokens: i32,
    #[doc = " columns of block tables, 1..2^26; 0 = the pages of the group. Tables of KVC_TABLES_BRANCHES\nhave their own number of columns"]
    pub max_pages_per_row: i32,
    #[doc = " 0"]
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_graph_config"][::core::mem::size_of::<kvc_graph_config>() - 24usize];
    ["Alignment of kvc_graph_config"][::core::mem::align_of::<kvc_graph_config>() - 4usize];
    ["Offset of field: kvc_graph_config::struct_size"][::core::mem::offset_of!(kvc_graph_config, struct_size) - 0usize];
    ["Offset of field: kvc_graph_config::flags"][::core::mem::offset_of!(kvc_graph_config, flags) - 4usize];
    ["Offset of field: kvc_graph_config::max_sequences"]
        [::core::mem::offset_of!(kvc_graph_config, max_sequences) - 8usize];
    ["Offset of field: kvc_graph_config::max_tokens"][::core::mem::offset_of!(kvc_graph_config, max_tokens) - 12usize];
    ["Offset of field: kvc_graph_config::max_pages_per_row"]
        [::core::mem::offset_of!(kvc_graph_config, max_pages_per_row) - 16usize];
    ["Offset of field: kvc_graph_config::reserved"][::core::mem::offset_of!(kvc_graph_config, reserved) - 20usize];
};
#[doc = " K and V together: [pages, 2, Hkv, page_size, D]; only if they are stored together"]
pub const KVC_POOL_KV: kvc_pool = 0;
#[doc = " [pages, Hkv, page_size, D]"]
pub const KVC_POOL_K: kvc_pool = 1;
#[doc = " [pages, Hkv, page_size, Dv]; MLA: the leading dims of KVC_POOL_K"]
pub const KVC_POOL_V: kvc_pool = 2;
#[doc = " float32: [pages, Hkv, page_size] of int8, uint4; [Hkv] of float8, float4 (ones if none given)"]
pub const KVC_POOL_K_SCALE: kvc_pool = 3;
pub const KVC_POOL_V_SCALE: kvc_pool = 4;
#[doc = " ============================================================================================\n 8  Tensors: views, exports, imports\n ============================================================================================"]
pub type kvc_pool = ::core::ffi::c_uint;
#[doc = " without it the view carries DLPack's READ_ONLY flag"]
pub const KVC_POOL_WRITABLE: kvc_pool_flags = 1;
pub type kvc_pool_flags = ::core::ffi::c_uint;
pub const KVC_EXPORT_K: kvc_export_parts = 1;
pub const KVC_EXPORT_V: kvc_export_parts = 2;
#[doc = " only of a quantised layer"]
pub const KVC_EXPORT_K_SCALE: kvc_export_parts = 4;
pub const KVC_EXPORT_V_SCALE: kvc_export_parts = 8;
pub type kvc_export_parts = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_export_args {
    pub struct_size: u32,
    pub layer: i32,
    #[doc = " KVC_EXPORT_*; 0 = all that the layer has (MLA: K and its scales; V is a part of K)"]
    pub parts: u32,
    #[doc = " 0"]
    pub reserved: u32,
    #[doc = " tokens [position_begin, position_end) of the sequence"]
    pub position_begin: i64,
    #[doc = " 0 = the sequence's length (so [0, 0) cannot be requested). Cross layers: both positions are in\nthe encoder sequence"]
    pub position_end: i64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_export_args"][::core::mem::size_of::<kvc_export_args>() - 32usize];
    ["Alignment of kvc_export_args"][::core::mem::align_of::<kvc_export_args>() - 8usize];
    ["Offset of field: kvc_export_args::struct_size"][::core::mem::offset_of!(kvc_export_args, struct_size) - 0usize];
    ["Offset of field: kvc_export_args::layer"][::core::mem::offset_of!(kvc_export_args, layer) - 4usize];
    ["Offset of field: kvc_export_args::parts"][::core::mem::offset_of!(kvc_export_args, parts) - 8usize];
    ["Offset of field: kvc_export_args::reserved"][::core::mem::offset_of!(kvc_export_args, reserved) - 12usize];
    ["Offset of field: kvc_export_args::position_begin"]
        [::core::mem::offset_of!(kvc_export_args, position_begin) - 16usize];
    ["Offset of field: kvc_export_args::position_end"]
        [::core::mem::offset_of!(kvc_export_args, position_end) - 24usize];
};
#[doc = " What an export returned. A part that was not requested is NULL. Release each tensor by its deleter."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_exported {
    pub struct_size: u32,
    pub reserved: u32,
    #[doc = " [tokens, Hkv, D] of the layer's dtype; float8: uint8; 4 bits: uint8, the bytes of a row"]
    pub k: *mut DLManagedTensorVersioned,
    #[doc = " [tokens, Hkv, Dv]"]
    pub v: *mut DLManagedTensorVersioned,
    #[doc = " float32, the factors of k: [tokens, Hkv] of int8, uint4; [Hkv] of float8, float4"]
    pub k_scale: *mut DLManagedTensorVersioned,
    pub v_scale: *mut DLManagedTensorVersioned,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_exported"][::core::mem::size_of::<kvc_exported>() - 40usize];
    ["Alignment of kvc_exported"][::core::mem::align_of::<kvc_exported>() - 8usize];
    ["Offset of field: kvc_exported::struct_size"][::core::mem::offset_of!(kvc_exported, struct_size) - 0usize];
    ["Offset of field: kvc_exported::reserved"][::core::mem::offset_of!(kvc_exported, reserved) - 4usize];
    ["Offset of field: kvc_exported::k"][::core::mem::offset_of!(kvc_exported, k) - 8usize];
    ["Offset of field: kvc_exported::v"][::core::mem::offset_of!(kvc_exported, v) - 16usize];
    ["Offset of field: kvc_exported::k_scale"][::core::mem::offset_of!(kvc_exported, k_scale) - 24usize];
    ["Offset of field: kvc_exported::v_scale"][::core::mem::offset_of!(kvc_exported, v_scale) - 32usize];
};
#[doc = " k is as exported, and k and v may be stored bytes: as KVC_APPEND_AS_STORED"]
pub const KVC_IMPORT_AS_STORED: kvc_import_flags = 1;
pub type kvc_import_flags = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_import_args {
    pub struct_size: u32,
    #[doc = " KVC_IMPORT_*"]
    pub flags: u32,
    #[doc = " all layers of the cache"]
    pub num_layers: i32,
    #[doc = " 0"]
    pub reserved: u32,
    #[doc = " [num_layers], each [T, Hkv, D] of that layer; T the same in all, 1..max_batch_tokens. NULL for\na layer that reads another's K and V (kvc_layer_config.kv_layer), and for a cross layer"]
    pub k: *const *const DLTensor,
    #[doc = " [num_layers], each [T, Hkv, Dv], or as kvc_append_args.v; NULL where k is. Nullable if every\nlayer is MLA"]
    pub v: *const *const DLTensor,
    #[doc = " nullable: none. [num_layers], each as kvc_append_args.k_scale, or NULL"]
    pub k_scale: *const *const DLTensor,
    #[doc = " the same for v"]
    pub v_scale: *const *const DLTensor,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_import_args"][::core::mem::size_of::<kvc_import_args>() - 48usize];
    ["Alignment of kvc_import_args"][::core::mem::align_of::<kvc_import_args>() - 8usize];
    ["Offset of field: kvc_import_args::struct_size"][::core::mem::offset_of!(kvc_import_args, struct_size) - 0usize];
    ["Offset of field: kvc_import_args::flags"][::core::mem::offset_of!(kvc_import_args, flags) - 4usize];
    ["Offset of field: kvc_import_args::num_layers"][::core::mem::offset_of!(kvc_import_args, num_layers) - 8usize];
    ["Offset of field: kvc_import_args::reserved"][::core::mem::offset_of!(kvc_import_args, reserved) - 12usize];
    ["Offset of field: kvc_import_args::k"][::core::mem::offset_of!(kvc_import_args, k) - 16usize];
    ["Offset of field: kvc_import_args::v"][::core::mem::offset_of!(kvc_import_args, v) - 24usize];
    ["Offset of field: kvc_import_args::k_scale"][::core::mem::offset_of!(kvc_import_args, k_scale) - 32usize];
    ["Offset of field: kvc_import_args::v_scale"][::core::mem::offset_of!(kvc_import_args, v_scale) - 40usize];
};
#[doc = " One copy that a cache with KVC_STORAGE_NONE leaves to the engine, which makes it in its own pools:\n\n   config.storage = KVC_STORAGE_NONE;                       // page ids and tables, no K and V\n   ...\n   kvc_seq_fork(cache, n, parents, positions, children, NULL, &error);\n   if (kvc_cache_take_copies(cache, copies, sizeof copies[0], CAPACITY, &num_copies, &error)) return report(error.message);\n   copy_in_my_pools(copies, num_copies);                    // one after another, in each layer of copies[i].group\n   if (kvc_forward_begin(cache, &batch, NULL, &step, &error)) return report(error.message);\n   ... kvc_cache_take_copies, copy_in_my_pools ...          // begin replaces a shared last page by a copy\n   ... store the new tokens, attend ...\n   kvc_forward_end(cache, step, &error);\n\n Three calls queue copies: a fork, of a partial last page; begin, of a shared last page; and a commit, to move kept nodes to the\n front. A commit can queue several for a sequence and group, the others at most one. Nothing else moves tokens.\n   Order   Make the copies one after another, in the order in which they come. Make those of a fork or commit before the next\n           step stores or reads anything, and those of begin before its own step reads.\n   Taking  While copies of earlier calls wait, kvc_forward_begin is refused (ORDER), so that nothing overwrites what they read.\n           Once max_sequences * num_groups copies wait, kvc_seq_fork and kvc_seq_commit are refused too.\n   Abort   An abort drops the copies of its step that were not taken. kvc_cache_clear drops all copies.\n The layout of this struct is frozen."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_copy {
    #[doc = " first slot to read; count slots from there on are in one page"]
    pub source_slot: i64,
    #[doc = " first slot to write, likewise in one page. In a commit the two ranges may overlap, with target_slot\nbelow source_slot: copy as memmove does"]
    pub target_slot: i64,
    pub group: i32,
    #[doc = " tokens, >= 1"]
    pub count: i32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_copy"][::core::mem::size_of::<kvc_copy>() - 24usize];
    ["Alignment of kvc_copy"][::core::mem::align_of::<kvc_copy>() - 8usize];
    ["Offset of field: kvc_copy::source_slot"][::core::mem::offset_of!(kvc_copy, source_slot) - 0usize];
    ["Offset of field: kvc_copy::target_slot"][::core::mem::offset_of!(kvc_copy, target_slot) - 8usize];
    ["Offset of field: kvc_copy::group"][::core::mem::offset_of!(kvc_copy, group) - 16usize];
    ["Offset of field: kvc_copy::count"][::core::mem::offset_of!(kvc_copy, count) - 20usize];
};
#[doc = " ============================================================================================\n 9  Statistics\n ============================================================================================"]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_stats {
    pub struct_size: u32,
    #[doc = " sequences that exist"]
    pub num_sequences: i32,
    #[doc = " pages of the group (whole cache: of all groups)"]
    pub pages_total: i64,
    #[doc = " pages with at least one reference"]
    pub pages_used: i64,
    pub pages_free: i64,
    #[doc = " used pages that belong to two or more sequences"]
    pub pages_shared: i64,
    #[doc = " most pages ever used at once since create"]
    pub pages_peak: i64,
    #[doc = " tokens stored, a shared one counted once (whole cache: the largest group's)"]
    pub tokens_held: i64,
    #[doc = " of those, tokens that belong to two or more sequences"]
    pub tokens_shared: i64,
    #[doc = " sum of the sequences' lengths: what a cache without sharing would hold"]
    pub tokens_logical: i64,
    #[doc = " bytes of used pages that hold no token"]
    pub fragmentation_bytes: i64,
    #[doc = " bytes of the pools; as kvc_estimate.storage_bytes"]
    pub storage_bytes: i64,
    #[doc = " pages that the prefix index holds"]
    pub pages_published: i64,
    #[doc = " of those, pages that nothing else holds: a call that is short of pages evicts them. They count\nas used"]
    pub pages_idle: i64,
    #[doc = " pages that such calls have evicted since create"]
    pub pages_evicted: i64,
    #[doc = " kvc_prefix_attach calls that succeeded since create (of the cache, in every group)"]
    pub prefix_attaches: i64,
    #[doc = " tokens that these calls found"]
    pub prefix_tokens: i64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_stats"][::core::mem::size_of::<kvc_stats>() - 128usize];
    ["Alignment of kvc_stats"][::core::mem::align_of::<kvc_stats>() - 8usize];
    ["Offset of field: kvc_stats::struct_size"][::core::mem::offset_of!(kvc_stats, struct_size) - 0usize];
    ["Offset of field: kvc_stats::num_sequences"][::core::mem::offset_of!(kvc_stats, num_sequences) - 4usize];
    ["Offset of field: kvc_stats::pages_total"][::core::mem::offset_of!(kvc_stats, pages_total) - 8usize];
    ["Offset of field: kvc_stats::pages_used"][::core::mem::offset_of!(kvc_stats, pages_used) - 16usize];
    ["Offset of field: kvc_stats::pages_free"][::core::mem::offset_of!(kvc_stats, pages_free) - 24usize];
    ["Offset of field: kvc_stats::pages_shared"][::core::mem::offset_of!(kvc_stats, pages_shared) - 32usize];
    ["Offset of field: kvc_stats::pages_peak"][::core::mem::offset_of!(kvc_stats, pages_peak) - 40usize];
    ["Offset of field: kvc_stats::tokens_held"][::core::mem::offset_of!(kvc_stats, tokens_held) - 48usize];
    ["Offset of field: kvc_stats::tokens_shared"][::core::mem::offset_of!(kvc_stats, tokens_shared) - 56usize];
    ["Offset of field: kvc_stats::tokens_logical"][::core::mem::offset_of!(kvc_stats, tokens_logical) - 64usize];
    ["Offset of field: kvc_stats::fragmentation_bytes"]
        [::core::mem::offset_of!(kvc_stats, fragmentation_bytes) - 72usize];
    ["Offset of field: kvc_stats::storage_bytes"][::core::mem::offset_of!(kvc_stats, storage_bytes) - 80usize];
    ["Offset of field: kvc_stats::pages_published"][::core::mem::offset_of!(kvc_stats, pages_published) - 88usize];
    ["Offset of field: kvc_stats::pages_idle"][::core::mem::offset_of!(kvc_stats, pages_idle) - 96usize];
    ["Offset of field: kvc_stats::pages_evicted"][::core::mem::offset_of!(kvc_stats, pages_evicted) - 104usize];
    ["Offset of field: kvc_stats::prefix_attaches"][::core::mem::offset_of!(kvc_stats, prefix_attaches) - 112usize];
    ["Offset of field: kvc_stats::prefix_tokens"][::core::mem::offset_of!(kvc_stats, prefix_tokens) - 120usize];
};
#[doc = " a query sees no later key: window_right is 0"]
pub const KVC_FLASH_ATTN_CAUSAL: kvc_flash_attn_flags = 1;
#[doc = " rotated pairs are dims 2i, 2i+1; without it: i, i + rotary_dim/2"]
pub const KVC_FLASH_ATTN_ROTARY_INTERLEAVED: kvc_flash_attn_flags = 2;
#[doc = " window_left applies; without it, a query sees everything before it"]
pub const KVC_FLASH_ATTN_WINDOW_LEFT: kvc_flash_attn_flags = 4;
#[doc = " window_right applies; without it, a query sees everything after it"]
pub const KVC_FLASH_ATTN_WINDOW_RIGHT: kvc_flash_attn_flags = 8;
#[doc = " as KVC_ATTEND_ALIBI_SIGNED"]
pub const KVC_FLASH_ATTN_ALIBI_SIGNED: kvc_flash_attn_flags = 16;
#[doc = " These calls are for engines that keep K and V in their own tensors. They need a context, and no kvc_cache. A decode step over a\n paged cache:\n\n   kvc_flash_attn_args args;  kvc_flash_attn_args_init(&args);\n   args.q = &q;  args.k = &k;  args.v = &v;  args.out = &out;           // of the new tokens, [B, 1, heads, dims]\n   args.k_cache = &k_cache;  args.v_cache = &v_cache;                   // [pages, page_size, Hkv, dims]\n   args.cache_seqlens = &lengths;  args.block_table = &table;           // int32 [B], [B, max_pages]\n   args.flags = KVC_FLASH_ATTN_CAUSAL;\n   if (kvc_flash_attn_with_kvcache(context, &args, NULL, &error)) return report(error.message);\n\n More letters: B rows (sequences) of a call; Sq and Sn queries and new tokens of a row; Tq and Tn those of all rows.\n Tensors are on the context's device and borrowed. Index tensors (lengths, offsets, cache rows, slots, block_table) are int32\n or int64, with any stride; stride 0 means one value for all. Lengths may have rank 0.\n On a GPU, the index tensors of a call are all on the host, or all on the device (single numbers may be on the host).\n   On the host    Every value is read once and checked by the call.\n   On the device  Nothing is read back, uploaded or waited for. The shapes give a capacity, which decides how the work is\n                  divided. A captured call uses, at each replay, what its tensors hold then. A row with a value out of its\n                  range is skipped: nothing of it is stored, and out keeps its contents. Page ids are checked only with\n                  KVC_CONTEXT_VALIDATE, which also reports what was bad."]
pub type kvc_flash_attn_flags = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_flash_attn_args {
    pub struct_size: u32,
    #[doc = " KVC_FLASH_ATTN_*"]
    pub flags: u32,
    #[doc = " [B, Sq, Hq, D], or with cu_seqlens_q [>= Tq, Hq, D]; float32, float16 or bfloat16, or without\nrotary also float8. This tensor, and all tensors below whose last dimension is the head dim,\nhave innermost stride 1"]
    pub q: *const DLTensor,
    #[doc = " [pages, page_size, Hkv, D] with block_table, else [cache rows, capacity, Hkv, D]; float32,\nfloat16, bfloat16, float8_e4m3fn or float8_e5m2, by any strides (a cache in HND order is a\ntransposed view). Written if k is given. Any page size, any D and Dv up to 1024"]
    pub k_cache: *const DLTensor,
    #[doc = " [likewise, Dv], of the same dtype. The two may be views into one buffer, without a common\nelement"]
    pub v_cache: *const DLTensor,
    #[doc = " nullable, with v: nothing is appended. [B, Sn, Hkv, D], or with cu_seqlens_k_new\n[>= Tn, Hkv, D]: stored after each row's cached tokens before anything attends. float32,\nfloat16, bfloat16, or the cache's dtype, which is stored unchanged"]
    pub k: *const DLTensor,
    #[doc = " nullable, with k; [likewise, Dv]"]
    pub v: *const DLTensor,
    #[doc = " nullable; as q, of its dtype, with Dv for D: scores are q.k + qv.v (absorbed latent attention:\nv_cache has the latent rows, k_cache their rotary parts). D + Dv <= 1152. Fast where Hkv is 1\nand each row of k_cache is stored right after that of v_cache"]
    pub qv: *const DLTensor,
    #[doc = " written; [B, Sq, Hq, Dv] or [>= Tq, Hq, Dv]; float32, float16 or bfloat16"]
    pub out: *const DLTensor,
    #[doc = " nullable; written; [B, Hq, Sq], or with cu_seqlens_q [Hq, >= Tq], float32: natural-log sum of\nexponentials of the scores, the sink's included"]
    pub softmax_lse: *const DLTensor,
    #[doc = " [B], or of rank 0: tokens in each row's cache, without the new ones. This call does\nnot change it. Nullable without k: the cache's whole capacity"]
    pub cache_seqlens: *const DLTensor,
    #[doc = " nullable: the other name of cache_seqlens; only one of them may be given"]
    pub seqused_k: *const DLTensor,
    #[doc = " nullable: row b's cache is cache row b. [B]: the cache row of each row (with\nblock_table: the row of block_table). With k, all must differ"]
    pub cache_batch_idx: *const DLTensor,
    #[doc = " nullable: 0. [B]: first valid key of each row, at most cache_seqlens"]
    pub cache_leftpad: *const DLTensor,
    #[doc = " nullable: not paged. [rows, max_pages], columns by stride 1: page ids in order.\nEntries that the call does not use may have any value, such as -1"]
    pub block_table: *const DLTensor,
    #[doc = " nullable. [B + 1], from 0 on, not descending: row b's queries are\n[cu_seqlens_q[b], cu_seqlens_q[b+1])"]
    pub cu_seqlens_q: *const DLTensor,
    #[doc = " nullable; [B + 1]: the same of k and v; ignored without k"]
    pub cu_seqlens_k_new: *const DLTensor,
    #[doc = " nullable, with rotary_sin, only with k. [positions, rotary_dim/2] float32, float16 or\nbfloat16; the first rotary_dim dims of q and k are rotated. Row b's new keys have\npositions cache_seqlens[b], cache_seqlens[b] + 1 ..., and so have its queries; without\ncausal and windows all its queries have position cache_seqlens[b]. Left padding does\nnot change that"]
    pub rotary_cos: *const DLTensor,
    pub rotary_sin: *const DLTensor,
    #[doc = " nullable; [B]: positions count from here, not from cache_seqlens. Ignored without\nk or rotary_cos"]
    pub rotary_seqlens: *const DLTensor,
    #[doc = " nullable; [B, Hkv] float32, with float8 q: q is multiplied by it"]
    pub q_descale: *const DLTensor,
    #[doc = " nullable; [B, Hkv] float32, with a float8 cache: k_cache is multiplied by it. New k\nthat is not float8 is stored as k / k_descale, rounded to nearest even and\nsaturated"]
    pub k_descale: *const DLTensor,
    #[doc = " nullable; [B, Hkv]: the same for v"]
    pub v_descale: *const DLTensor,
    #[doc = " nullable; [Hq] or [B, Hq] float32: slope * |p_q - p_k| is subtracted from scores (see\nKVC_ATTEND_ALIBI_SIGNED)"]
    pub alibi_slopes: *const DLTensor,
    #[doc = " nullable; [Hq] float32, float16 or bfloat16: a logit of each head that joins the softmax\nwithout a value"]
    pub sinks: *const DLTensor,
    #[doc = " 1e-30..1e30; 0 = D^-0.5, with qv (D + Dv)^-0.5"]
    pub softmax_scale: f64,
    #[doc = " scores become softcap * tanh(score / softcap); 1e-6..1e30; 0 = none"]
    pub softcap: f64,
    #[doc = " a query at p sees keys from p - window_left on; with its flag; >= 0, else 0"]
    pub window_left: i32,
    #[doc = " ... and up to p + window_right, included; with its flag; >= 0, else 0"]
    pub window_right: i32,
    #[doc = " c > 0: of those, keys j with j/c == p/c, both counted from the first valid key; 0 = none"]
    pub attention_chunk: i32,
    #[doc = " parts that each row's keys are cut into, at most 256, fewer where keys are few; 0 = chosen by\ncost"]
    pub num_splits: i32,
    #[doc = " nullable: no lists. [B, Sq, 1 or Hkv, k] int32, or with cu_seqlens_q [>= Tq, 1 or Hkv, k]; k at most\nKVC_MAX_LISTED_KEYS. See below"]
    pub indices: *const DLTensor,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_flash_attn_args"][::core::mem::size_of::<kvc_flash_attn_args>() - 232usize];
    ["Alignment of kvc_flash_attn_args"][::core::mem::align_of::<kvc_flash_attn_args>() - 8usize];
    ["Offset of field: kvc_flash_attn_args::struct_size"]
        [::core::mem::offset_of!(kvc_flash_attn_args, struct_size) - 0usize];
    ["Offset of field: kvc_flash_attn_args::flags"][::core::mem::offset_of!(kvc_flash_attn_args, flags) - 4usize];
    ["Offset of field: kvc_flash_attn_args::q"][::core::mem::offset_of!(kvc_flash_attn_args, q) - 8usize];
    ["Offset of field: kvc_flash_attn_args::k_cache"][::core::mem::offset_of!(kvc_flash_attn_args, k_cache) - 16usize];
    ["Offset of field: kvc_flash_attn_args::v_cache"][::core::mem::offset_of!(kvc_flash_attn_args, v_cache) - 24usize];
    ["Offset of field: kvc_flash_attn_args::k"][::core::mem::offset_of!(kvc_flash_attn_args, k) - 32usize];
    ["Offset of field: kvc_flash_attn_args::v"][::core::mem::offset_of!(kvc_flash_attn_args, v) - 40usize];
    ["Offset of field: kvc_flash_attn_args::qv"][::core::mem::offset_of!(kvc_flash_attn_args, qv) - 48usize];
    ["Offset of field: kvc_flash_attn_args::out"][::core::mem::offset_of!(kvc_flash_attn_args, out) - 56usize];
    ["Offset of field: kvc_flash_attn_args::softmax_lse"]
        [::core::mem::offset_of!(kvc_flash_attn_args, softmax_lse) - 64usize];
    ["Offset of field: kvc_flash_attn_args::cache_seqlens"]
        [::core::mem::offset_of!(kvc_flash_attn_args, cache_seqlens) - 72usize];
    ["Offset of field: kvc_flash_attn_args::seqused_k"]
        [::core::mem::offset_of!(kvc_flash_attn_args, seqused_k) - 80usize];
    ["Offset of field: kvc_flash_attn_args::cache_batch_idx"]
        [::core::mem::offset_of!(kvc_flash_attn_args, cache_batch_idx) - 88usize];
    ["Offset of field: kvc_flash_attn_args::cache_leftpad"]
        [::core::mem::offset_of!(kvc_flash_attn_args, cache_leftpad) - 96usize];
    ["Offset of field: kvc_flash_attn_args::block_table"]
        [::core::mem::offset_of!(kvc_flash_attn_args, block_table) - 104usize];
    ["Offset of field: kvc_flash_attn_args::cu_seqlens_q"]
        [::core::mem::offset_of!(kvc_flash_attn_args, cu_seqlens_q) - 112usize];
    ["Offset of field: kvc_flash_attn_args::cu_seqlens_k_new"]
        [::core::mem::offset_of!(kvc_flash_attn_args, cu_seqlens_k_new) - 120usize];
    ["Offset of field: kvc_flash_attn_args::rotary_cos"]
        [::core::mem::offset_of!(kvc_flash_attn_args, rotary_cos) - 128usize];
    ["Offset of field: kvc_flash_attn_args::rotary_sin"]
        [::core::mem::offset_of!(kvc_flash_attn_args, rotary_sin) - 136usize];
    ["Offset of field: kvc_flash_attn_args::rotary_seqlens"]
        [::core::mem::offset_of!(kvc_flash_attn_args, rotary_seqlens) - 144usize];
    ["Offset of field: kvc_flash_attn_args::q_descale"]
        [::core::mem::offset_of!(kvc_flash_attn_args, q_descale) - 152usize];
    ["Offset of field: kvc_flash_attn_args::k_descale"]
        [::core::mem::offset_of!(kvc_flash_attn_args, k_descale) - 160usize];
    ["Offset of field: kvc_flash_attn_args::v_descale"]
        [::core::mem::offset_of!(kvc_flash_attn_args, v_descale) - 168usize];
    ["Offset of field: kvc_flash_attn_args::alibi_slopes"]
        [::core::mem::offset_of!(kvc_flash_attn_args, alibi_slopes) - 176usize];
    ["Offset of field: kvc_flash_attn_args::sinks"][::core::mem::offset_of!(kvc_flash_attn_args, sinks) - 184usize];
    ["Offset of field: kvc_flash_attn_args::softmax_scale"]
        [::core::mem::offset_of!(kvc_flash_attn_args, softmax_scale) - 192usize];
    ["Offset of field: kvc_flash_attn_args::softcap"][::core::mem::offset_of!(kvc_flash_attn_args, softcap) - 200usize];
    ["Offset of field: kvc_flash_attn_args::window_left"]
        [::core::mem::offset_of!(kvc_flash_attn_args, window_left) - 208usize];
    ["Offset of field: kvc_flash_attn_args::window_right"]
        [::core::mem::offset_of!(kvc_flash_attn_args, window_right) - 212usize];
    ["Offset of field: kvc_flash_attn_args::attention_chunk"]
        [::core::mem::offset_of!(kvc_flash_attn_args, attention_chunk) - 216usize];
    ["Offset of field: kvc_flash_attn_args::num_splits"]
        [::core::mem::offset_of!(kvc_flash_attn_args, num_splits) - 220usize];
    ["Offset of field: kvc_flash_attn_args::indices"][::core::mem::offset_of!(kvc_flash_attn_args, indices) - 224usize];
};
#[doc = " as KVC_FLASH_ATTN_ROTARY_INTERLEAVED"]
pub const KVC_APPEND_SLOTS_ROTARY_INTERLEAVED: kvc_append_slots_flags = 1;
pub type kvc_append_slots_flags = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_append_slots_args {
    pub struct_size: u32,
    #[doc = " KVC_APPEND_SLOTS_*"]
    pub flags: u32,
    #[doc = " [>= T, Hkv, D] float32, float16, bfloat16, or the cache's dtype, which is stored\nunchanged; innermost stride 1. Latent form: the rotary parts, [>= T, 1, D - L], not\nfloat8"]
    pub k: *const DLTensor,
    #[doc = " [>= T, Hkv, Dv], as k. Latent form: the latent parts, [>= T, 1, L], not float8"]
    pub v: *const DLTensor,
    #[doc = " written; [pages, page_size, Hkv, D] as kvc_flash_attn_args.k_cache. Latent form:\n[pages, page_size, 1, D], rows [latent | rotary]"]
    pub k_cache: *const DLTensor,
    #[doc = " written; [pages, page_size, Hkv, Dv] of the same dtype. NULL: the latent form"]
    pub v_cache: *const DLTensor,
    #[doc = " int32 or int64 [T]: where each row goes, page * page_size + offset; negative: the row is\nskipped. T is at most 2^26"]
    pub slot_mapping: *const DLTensor,
    #[doc = " nullable: 1. [1] or [Hkv] float32, with a float8 cache: k is stored as k / k_scale, rounded to\nnearest even and saturated (latent form: whole rows)"]
    pub k_scale: *const DLTensor,
    #[doc = " nullable; the same for v (latent form: NULL)"]
    pub v_scale: *const DLTensor,
    #[doc = " nullable, with rotary_sin and positions; as in kvc_flash_attn_args: the first dims of k are\nrotated"]
    pub rotary_cos: *const DLTensor,
    pub rotary_sin: *const DLTensor,
    #[doc = " nullable, with rotary_cos; int32 or int64 [T]: the row of cos and sin of each token that is\nstored"]
    pub positions: *const DLTensor,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_append_slots_args"][::core::mem::size_of::<kvc_append_slots_args>() - 88usize];
    ["Alignment of kvc_append_slots_args"][::core::mem::align_of::<kvc_append_slots_args>() - 8usize];
    ["Offset of field: kvc_append_slots_args::struct_size"]
        [::core::mem::offset_of!(kvc_append_slots_args, struct_size) - 0usize];
    ["Offset of field: kvc_append_slots_args::flags"][::core::mem::offset_of!(kvc_append_slots_args, flags) - 4usize];
    ["Offset of field: kvc_append_slots_args::k"][::core::mem::offset_of!(kvc_append_slots_args, k) - 8usize];
    ["Offset of field: kvc_append_slots_args::v"][::core::mem::offset_of!(kvc_append_slots_args, v) - 16usize];
    ["Offset of field: kvc_append_slots_args::k_cache"]
        [::core::mem::offset_of!(kvc_append_slots_args, k_cache) - 24usize];
    ["Offset of field: kvc_append_slots_args::v_cache"]
        [::core::mem::offset_of!(kvc_append_slots_args, v_cache) - 32usize];
    ["Offset of field: kvc_append_slots_args::slot_mapping"]
        [::core::mem::offset_of!(kvc_append_slots_args, slot_mapping) - 40usize];
    ["Offset of field: kvc_append_slots_args::k_scale"]
        [::core::mem::offset_of!(kvc_append_slots_args, k_scale) - 48usize];
    ["Offset of field: kvc_append_slots_args::v_scale"]
        [::core::mem::offset_of!(kvc_append_slots_args, v_scale) - 56usize];
    ["Offset of field: kvc_append_slots_args::rotary_cos"]
        [::core::mem::offset_of!(kvc_append_slots_args, rotary_cos) - 64usize];
    ["Offset of field: kvc_append_slots_args::rotary_sin"]
        [::core::mem::offset_of!(kvc_append_slots_args, rotary_sin) - 72usize];
    ["Offset of field: kvc_append_slots_args::positions"]
        [::core::mem::offset_of!(kvc_append_slots_args, positions) - 80usize];
};
#[doc = " all keys of each row"]
pub const KVC_TABLES_WHOLE: kvc_tables_part = 0;
#[doc = " steps that branch (trees; drafts with top_k > 1): keys that all branches share"]
pub const KVC_TABLES_PREFIX: kvc_tables_part = 1;
#[doc = " the other keys of each branch: one row for each token, with the token itself and its visible\nancestors only"]
pub const KVC_TABLES_BRANCHES: kvc_tables_part = 2;
#[doc = " plans with encoder_lens: the encoder's keys"]
pub const KVC_TABLES_ENCODER: kvc_tables_part = 3;
#[doc = " ============================================================================================\n 11  Tables for other kernels\n ============================================================================================\n Tables give other attention kernels what they need from a step: block tables, lengths, slots. They come from a cache's\n forward (kvc_forward_tables), or from the arrays of a server with its own allocator (kvc_plan_*). docs/reference/tables.md\n lists the kinds of steps, and says what each array means.\n\n   kvc_tables tables;  kvc_tables_init(&tables);\n   if (kvc_forward_tables(cache, step, group, &tables, &error)) return report(error.message);\n   fa3(q, k_pool, v_pool, &tables.block_table, &tables.cache_seqlens, &tables.cu_seqlens_q, tables.max_seqlen_q, tables.causal);\n\n A table holds exactly the keys that queries see. So a kernel needs no mask except \"causal\". It needs a window only if one\n row has several queries of a sliding group or of a stream. If one table cannot express this, there are two, and merging\n attention over both by LSE (kvc_merge_states) gives the exact result."]
pub type kvc_tables_part = ::core::ffi::c_uint;
#[doc = " pad_value is the padding; without it -1 (graph mode: 0)"]
pub const KVC_TABLES_PAD_VALUE: kvc_tables_flags = 1;
#[doc = " tables of page size 1: slots where pages were, and no leftpad"]
pub const KVC_TABLES_SLOTS: kvc_tables_flags = 2;
pub type kvc_tables_flags = ::core::ffi::c_uint;
#[doc = " block_table"]
pub const KVC_TABLES_DENSE: kvc_tables_arrays = 1;
#[doc = " indptr, indices, last_page_len"]
pub const KVC_TABLES_CSR: kvc_tables_arrays = 2;
#[doc = " slot_mapping, positions, last_rows"]
pub const KVC_TABLES_TOKENS: kvc_tables_arrays = 4;
pub type kvc_tables_arrays = ::core::ffi::c_uint;
#[doc = " Tables of one step. Rows of a table are rows of the batch in their order, unless a row is cut (chunks) or branches; batch_rows\n names the row of the batch. Tensors are borrowed, on the device, int32 and compact unless said otherwise. A tensor that was not\n requested has ndim 0. In graph mode, shapes and maxima are those of the capacity."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_tables {
    pub struct_size: u32,
    #[doc = " KVC_TABLES_PAD_VALUE | KVC_TABLES_SLOTS"]
    pub flags: u32,
    #[doc = " KVC_TABLES_* part"]
    pub part: i32,
    #[doc = " with KVC_TABLES_PAD_VALUE: entries of block_table after a row's pages"]
    pub pad_value: i32,
    #[doc = " KVC_TABLES_DENSE | ...; 0 = all"]
    pub arrays: u32,
    #[doc = " 1: a row's queries are the last of its keys, and each sees the keys up to itself. 0: each\nquery sees all keys"]
    pub causal: u32,
    #[doc = " R, rows of the table"]
    pub num_rows: i32,
    #[doc = " of all rows: T"]
    pub num_queries: i32,
    #[doc = " of block_table and the CSR: the group's, or 1"]
    pub page_size: i32,
    #[doc = " on the host: the largest number of queries of a row"]
    pub max_seqlen_q: i32,
    #[doc = " on the host: the largest of cache_seqlens"]
    pub max_seqlen_k: i32,
    #[doc = " columns of block_table"]
    pub max_pages: i32,
    #[doc = " columns of all rows together: entries of indices that are used"]
    pub num_pages: i64,
    #[doc = " the last of cu_seqlens_k"]
    pub num_keys: i64,
    #[doc = " of a plan: number of the build (kvc_plan_check); of a graph: of the step; else 0"]
    pub generation: u64,
    #[doc = " [R, max_pages], rows by their stride: page ids, then padding (FlashAttention)"]
    pub block_table: DLTensor,
    #[doc = " [R]: tokens in the row's pages up to its last key, leftpad and hole included; 0 = no keys"]
    pub cache_seqlens: DLTensor,
    #[doc = " [R + 1]: the row's queries are tokens [cu_seqlens_q[r], cu_seqlens_q[r+1]) of the step"]
    pub cu_seqlens_q: DLTensor,
    #[doc = " [R + 1]: sums of the keys that rows have, leftpad and hole not counted"]
    pub cu_seqlens_k: DLTensor,
    #[doc = " [R + 1]: the row's pages are indices[indptr[r]..indptr[r+1]) (FlashInfer)"]
    pub indptr: DLTensor,
    #[doc = " [num_pages]"]
    pub indices: DLTensor,
    #[doc = " [R]: tokens in the row's last page, 1..page_size; 0 of a row without pages"]
    pub last_page_len: DLTensor,
    #[doc = " [R]: position of the row's first key, sinks aside (k_start); 0 where keys are listed one by one"]
    pub key_starts: DLTensor,
    #[doc = " [R]: tokens of the row's first page before its first key (cache_leftpad)"]
    pub leftpad: DLTensor,
    #[doc = " [R]: row of the batch; -1 = unused (graph mode)"]
    pub batch_rows: DLTensor,
    #[doc = " [R], only if a row streams: the row's first tokens, that every query sees"]
    pub sink_tokens: DLTensor,
    #[doc = " [R], with it: tokens after the sinks that no query sees; the window's keys follow"]
    pub hole_tokens: DLTensor,
    #[doc = " int64 [T]: slot of each new token; -1 = padding"]
    pub slot_mapping: DLTensor,
    #[doc = " [T]: position of each new token, by depth in trees"]
    pub positions: DLTensor,
    #[doc = " [rows of the batch]: index in [0, T) of the row's last token; -1 = none"]
    pub last_rows: DLTensor,
    #[doc = " int64 [1], of a plan or a graph: the generation of the arrays' contents, for kernels of a\ncaptured graph to compare. 0 = stale: write nothing"]
    pub generation_word: DLTensor,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_tables"][::core::mem::size_of::<kvc_tables>() - 840usize];
    ["Alignment of kvc_tables"][::core::mem::align_of::<kvc_tables>() - 8usize];
    ["Offset of field: kvc_tables::struct_size"][::core::mem::offset_of!(kvc_tables, struct_size) - 0usize];
    ["Offset of field: kvc_tables::flags"][::core::mem::offset_of!(kvc_tables, flags) - 4usize];
    ["Offset of field: kvc_tables::part"][::core::mem::offset_of!(kvc_tables, part) - 8usize];
    ["Offset of field: kvc_tables::pad_value"][::core::mem::offset_of!(kvc_tables, pad_value) - 12usize];
    ["Offset of field: kvc_tables::arrays"][::core::mem::offset_of!(kvc_tables, arrays) - 16usize];
    ["Offset of field: kvc_tables::causal"][::core::mem::offset_of!(kvc_tables, causal) - 20usize];
    ["Offset of field: kvc_tables::num_rows"][::core::mem::offset_of!(kvc_tables, num_rows) - 24usize];
    ["Offset of field: kvc_tables::num_queries"][::core::mem::offset_of!(kvc_tables, num_queries) - 28usize];
    ["Offset of field: kvc_tables::page_size"][::core::mem::offset_of!(kvc_tables, page_size) - 32usize];
    ["Offset of field: kvc_tables::max_seqlen_q"][::core::mem::offset_of!(kvc_tables, max_seqlen_q) - 36usize];
    ["Offset of field: kvc_tables::max_seqlen_k"][::core::mem::offset_of!(kvc_tables, max_seqlen_k) - 40usize];
    ["Offset of field: kvc_tables::max_pages"][::core::mem::offset_of!(kvc_tables, max_pages) - 44usize];
    ["Offset of field: kvc_tables::num_pages"][::core::mem::offset_of!(kvc_tables, num_pages) - 48usize];
    ["Offset of field: kvc_tables::num_keys"][::core::mem::offset_of!(kvc_tables, num_keys) - 56usize];
    ["Offset of field: kvc_tables::generation"][::core::mem::offset_of!(kvc_tables, generation) - 64usize];
    ["Offset of field: kvc_tables::block_table"][::core::mem::offset_of!(kvc_tables, block_table) - 72usize];
    ["Offset of field: kvc_tables::cache_seqlens"][::core::mem::offset_of!(kvc_tables, cache_seqlens) - 120usize];
    ["Offset of field: kvc_tables::cu_seqlens_q"][::core::mem::offset_of!(kvc_tables, cu_seqlens_q) - 168usize];
    ["Offset of field: kvc_tables::cu_seqlens_k"][::core::mem::offset_of!(kvc_tables, cu_seqlens_k) - 216usize];
    ["Offset of field: kvc_tables::indptr"][::core::mem::offset_of!(kvc_tables, indptr) - 264usize];
    ["Offset of field: kvc_tables::indices"][::core::mem::offset_of!(kvc_tables, indices) - 312usize];
    ["Offset of field: kvc_tables::last_page_len"][::core::mem::offset_of!(kvc_tables, last_page_len) - 360usize];
    ["Offset of field: kvc_tables::key_starts"][::core::mem::offset_of!(kvc_tables, key_starts) - 408usize];
    ["Offset of field: kvc_tables::leftpad"][::core::mem::offset_of!(kvc_tables, leftpad) - 456usize];
    ["Offset of field: kvc_tables::batch_rows"][::core::mem::offset_of!(kvc_tables, batch_rows) - 504usize];
    ["Offset of field: kvc_tables::sink_tokens"][::core::mem::offset_of!(kvc_tables, sink_tokens) - 552usize];
    ["Offset of field: kvc_tables::hole_tokens"][::core::mem::offset_of!(kvc_tables, hole_tokens) - 600usize];
    ["Offset of field: kvc_tables::slot_mapping"][::core::mem::offset_of!(kvc_tables, slot_mapping) - 648usize];
    ["Offset of field: kvc_tables::positions"][::core::mem::offset_of!(kvc_tables, positions) - 696usize];
    ["Offset of field: kvc_tables::last_rows"][::core::mem::offset_of!(kvc_tables, last_rows) - 744usize];
    ["Offset of field: kvc_tables::generation_word"][::core::mem::offset_of!(kvc_tables, generation_word) - 792usize];
};
#[doc = " one new token a row. Parts: WHOLE (and ENCODER)"]
pub const KVC_PLAN_DECODE: kvc_plan_mode = 0;
#[doc = " append_lengths[i] new tokens: prefill, with a cached prefix or without, mixed with decoding\nrows, and draft extend. Parts: WHOLE (and ENCODER)"]
pub const KVC_PLAN_EXTEND: kvc_plan_mode = 1;
#[doc = " num_draft_tokens new tokens. A chain: WHOLE. With tree_parents: PREFIX and BRANCHES"]
pub const KVC_PLAN_VERIFY: kvc_plan_mode = 2;
#[doc = " step s of num_steps adds token s to each of top_k branches: all steps in one build. top_k 1:\nWHOLE, the token is entry seq_len + s. Larger top_k: PREFIX, whole pages, and BRANCHES. After\nthe whole pages each branch has a region of whole pages: the tokens of the partial last page\n(copied there by the server, in branch 0 they are in place), then its drafts"]
pub const KVC_PLAN_DRAFT_DECODE: kvc_plan_mode = 3;
#[doc = " Plans make the same tables for a server with its own allocator.\n\n   kvc_plan_config config;  kvc_plan_config_init(&config);      // once for each kind of step\n   config.mode = KVC_PLAN_VERIFY;  config.num_draft_tokens = 4;  config.page_size = 16;\n   if (kvc_plan_create(context, &config, &plan, &error)) return report(error.message);\n   kvc_plan_args args;  kvc_plan_args_init(&args);              // each step\n   args.seq_lens = &seq_lens;  args.req_to_token = &req_to_token;  args.rows = &req_pool_indices;\n   if (kvc_plan_build(plan, &args, stream, NULL, &error)) return report(error.message);\n   kvc_tables tables;  kvc_tables_init(&tables);\n   if (kvc_plan_tables(plan, 0, &tables, &error)) return report(error.message);\n\n Each entry of a row is the place of one token: a column of req_to_token, or one of the page_size places in a column of\n block_table. A row holds its encoder's tokens, if any, and then its own by position. The new tokens are included, and the\n server has allocated places for them."]
pub type kvc_plan_mode = ::core::ffi::c_uint;
#[doc = " capacity-sized arrays whose addresses never change; max_* are required"]
pub const KVC_PLAN_GRAPH: kvc_plan_flags = 1;
#[doc = " pad_value is the padding; without it -1 (graph mode: 0)"]
pub const KVC_PLAN_PAD_VALUE: kvc_plan_flags = 2;
#[doc = " tables of page size 1: slots where pages were, and no leftpad"]
pub const KVC_PLAN_SLOTS: kvc_plan_flags = 4;
#[doc = " seq_lens count this step's new tokens (not in DRAFT_DECODE); a row of 0 is inert.\nWithout it they count the tokens before the step"]
pub const KVC_PLAN_LENGTHS_WITH_NEW: kvc_plan_flags = 8;
pub type kvc_plan_flags = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_plan_config {
    pub struct_size: u32,
    #[doc = " KVC_PLAN_*"]
    pub flags: u32,
    #[doc = " KVC_PLAN_* mode"]
    pub mode: i32,
    #[doc = " tokens a page, 1..65536; 0 = 16"]
    pub page_size: i32,
    #[doc = " VERIFY: 1..1024; else 0"]
    pub num_draft_tokens: i32,
    #[doc = " DRAFT_DECODE: 1..64; else 0"]
    pub num_steps: i32,
    #[doc = " DRAFT_DECODE: branches of a row, 1..64; 0 = 1; else 0"]
    pub top_k: i32,
    #[doc = " with KVC_PLAN_PAD_VALUE"]
    pub pad_value: i32,
    #[doc = " KVC_TABLES_DENSE | ...; 0 = all"]
    pub arrays: u32,
    #[doc = " graph mode: rows of a batch, 1..1048576; else 0"]
    pub max_rows: i32,
    #[doc = " graph mode, EXTEND: new tokens of a batch, 1..1048576; else 0"]
    pub max_tokens: i32,
    #[doc = " graph mode: columns of block_table, 1..2^26; else 0"]
    pub max_pages_per_row: i32,
    #[doc = " queries see this many keys, themselves included: only the last pages. 0 = all"]
    pub window_tokens: i64,
    #[doc = " queries see their chunk up to themselves: virtual rows. 0 = all; not with window_tokens"]
    pub chunk_tokens: i64,
    #[doc = " pages of the server's pool, against which tables are checked: 1..2^31 / page_size, since slots\nare int32; 0 = unknown, as many"]
    pub num_pool_pages: i64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_plan_config"][::core::mem::size_of::<kvc_plan_config>() - 72usize];
    ["Alignment of kvc_plan_config"][::core::mem::align_of::<kvc_plan_config>() - 8usize];
    ["Offset of field: kvc_plan_config::struct_size"][::core::mem::offset_of!(kvc_plan_config, struct_size) - 0usize];
    ["Offset of field: kvc_plan_config::flags"][::core::mem::offset_of!(kvc_plan_config, flags) - 4usize];
    ["Offset of field: kvc_plan_config::mode"][::core::mem::offset_of!(kvc_plan_config, mode) - 8usize];
    ["Offset of field: kvc_plan_config::page_size"][::core::mem::offset_of!(kvc_plan_config, page_size) - 12usize];
    ["Offset of field: kvc_plan_config::num_draft_tokens"]
        [::core::mem::offset_of!(kvc_plan_config, num_draft_tokens) - 16usize];
    ["Offset of field: kvc_plan_config::num_steps"][::core::mem::offset_of!(kvc_plan_config, num_steps) - 20usize];
    ["Offset of field: kvc_plan_config::top_k"][::core::mem::offset_of!(kvc_plan_config, top_k) - 24usize];
    ["Offset of field: kvc_plan_config::pad_value"][::core::mem::offset_of!(kvc_plan_config, pad_value) - 28usize];
    ["Offset of field: kvc_plan_config::arrays"][::core::mem::offset_of!(kvc_plan_config, arrays) - 32usize];
    ["Offset of field: kvc_plan_config::max_rows"][::core::mem::offset_of!(kvc_plan_config, max_rows) - 36usize];
    ["Offset of field: kvc_plan_config::max_tokens"][::core::mem::offset_of!(kvc_plan_config, max_tokens) - 40usize];
    ["Offset of field: kvc_plan_config::max_pages_per_row"]
        [::core::mem::offset_of!(kvc_plan_config, max_pages_per_row) - 44usize];
    ["Offset of field: kvc_plan_config::window_tokens"]
        [::core::mem::offset_of!(kvc_plan_config, window_tokens) - 48usize];
    ["Offset of field: kvc_plan_config::chunk_tokens"]
        [::core::mem::offset_of!(kvc_plan_config, chunk_tokens) - 56usize];
    ["Offset of field: kvc_plan_config::num_pool_pages"]
        [::core::mem::offset_of!(kvc_plan_config, num_pool_pages) - 64usize];
};
#[doc = " DECODE, EXTEND: the caller promises that the rows are those of the last build, in the same order,\neach at least as long, with the pages that it had. Then only what is new is read. (CSR arrays are\nalways written whole)"]
pub const KVC_PLAN_ROWS_GREW: kvc_plan_build_flags = 1;
pub type kvc_plan_build_flags = ::core::ffi::c_uint;
#[doc = " The arrays of a step. All are borrowed. All are on the host or, for a plan with KVC_PLAN_GRAPH, all on the context's device.\n One-dimensional ones are int32 or int64, compact; tables are int32 with innermost stride 1."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_plan_args {
    pub struct_size: u32,
    #[doc = " KVC_PLAN_ROWS_GREW"]
    pub flags: u32,
    #[doc = " [B]: tokens of each row, 0..2^30, without encoder tokens. B may be 0"]
    pub seq_lens: *const DLTensor,
    #[doc = " EXTEND: [B], >= 0; else NULL"]
    pub append_lengths: *const DLTensor,
    #[doc = " nullable: row i of the batch is row i of the table. [B]: rows of the table; -1 = inert,\nits tokens are padding"]
    pub rows: *const DLTensor,
    #[doc = " [rows, columns]: page ids. Give this or req_to_token"]
    pub block_table: *const DLTensor,
    #[doc = " [rows, columns]: the slot of each token. With a page size above 1, the tokens of a page\nhave consecutive slots, the first a multiple of page_size"]
    pub req_to_token: *const DLTensor,
    #[doc = " nullable; [B]: encoder tokens that lie before the row's own; DECODE and EXTEND"]
    pub encoder_lens: *const DLTensor,
    #[doc = " nullable: chains. VERIFY: [B * num_draft_tokens], as kvc_batch.tree_parents, but for each\nrow by itself: parents come before their children, -1 = root"]
    pub tree_parents: *const DLTensor,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_plan_args"][::core::mem::size_of::<kvc_plan_args>() - 64usize];
    ["Alignment of kvc_plan_args"][::core::mem::align_of::<kvc_plan_args>() - 8usize];
    ["Offset of field: kvc_plan_args::struct_size"][::core::mem::offset_of!(kvc_plan_args, struct_size) - 0usize];
    ["Offset of field: kvc_plan_args::flags"][::core::mem::offset_of!(kvc_plan_args, flags) - 4usize];
    ["Offset of field: kvc_plan_args::seq_lens"][::core::mem::offset_of!(kvc_plan_args, seq_lens) - 8usize];
    ["Offset of field: kvc_plan_args::append_lengths"]
        [::core::mem::offset_of!(kvc_plan_args, append_lengths) - 16usize];
    ["Offset of field: kvc_plan_args::rows"][::core::mem::offset_of!(kvc_plan_args, rows) - 24usize];
    ["Offset of field: kvc_plan_args::block_table"][::core::mem::offset_of!(kvc_plan_args, block_table) - 32usize];
    ["Offset of field: kvc_plan_args::req_to_token"][::core::mem::offset_of!(kvc_plan_args, req_to_token) - 40usize];
    ["Offset of field: kvc_plan_args::encoder_lens"][::core::mem::offset_of!(kvc_plan_args, encoder_lens) - 48usize];
    ["Offset of field: kvc_plan_args::tree_parents"][::core::mem::offset_of!(kvc_plan_args, tree_parents) - 56usize];
};
#[repr(C)]
#[derive(Debug)]
pub struct kvc_plan {
    _unused: [u8; 0],
}
#[doc = " match and attach may find all tokens of the query. By default they leave out the last token,\nbecause an engine needs its logits"]
pub const KVC_PREFIX_ALLOW_ALL: kvc_prefix_query_flags = 1;
#[doc = " ============================================================================================\n 12  Prefix index: what the cache remembers\n ============================================================================================\n A cache with KVC_CACHE_PREFIX_INDEX can keep the pages of tokens after their sequence is gone. A later request that begins with\n the same tokens gets these pages, and computes only the rest. The loop of an engine:\n\n   kvc_prefix_query query;  kvc_prefix_query_init(&query);\n   query.tokens = prompt;  query.num_tokens = n;  query.salt = tenant;\n   kvc_prefix_hit hit;  kvc_prefix_hit_init(&hit);\n   kvc_seq seq;\n   if (kvc_prefix_attach(cache, &query, stream, &hit, &seq, &error)) return report(error.message);\n   ... a forward that appends prompt[hit.tokens .. n) to seq ...         // at least one token: its logits are needed\n   kvc_prefix_publish(cache, seq, &query, NULL, NULL, &error);           // others find the prompt while this one decodes\n   ... forwards that append one token each; `prompt` and n grow ...\n   query.tokens = prompt;  query.num_tokens = n;\n   kvc_prefix_publish(cache, seq, &query, NULL, NULL, &error);           // the answer too: the next request begins with it\n   kvc_seq_remove(cache, 1, &seq, &error);                               // the pages stay, until they are needed\n\n   Sharing   Whole pages are shared. A part of a page, down to one token, is copied into a fresh page of the new sequence.\n   Groups    A hit is the longest prefix that every group can serve. Full groups and latent rows need every page up to the hit.\n             Sliding and chunked groups need what the next query sees. Recurrent groups need the states after exactly these\n             tokens: the index holds those of the lengths at which sequences were published. The index ignores cross\n             groups: the new sequence has no encoder tokens.\n   Eviction  A published page that no sequence and no pin holds is idle. Calls that are short of pages evict idle pages:\n             kvc_forward_begin, kvc_seq_fork, kvc_seq_import and kvc_prefix_attach. Expired prefixes go first, then those of\n             lower priority, then those that kvc_cache_config.prefix_policy chooses, and a continuation before what it continues.\n             OUT_OF_PAGES means that even eviction of all idle pages would not help. What a failed or aborted call evicted\n             stays evicted. Equal calls evict equal pages, so page ids are equal on every rank.\n   Salts     Tokens under different salts never match. K and V must depend only on the tokens so far and on the salt. So\n             use a different salt for each tenant, adapter, image, and anything else that changes K and V.\n   Time      The library reads no clock. kvc_cache_set_time gives it the time.\n Every call of this section except kvc_cache_set_time is UNSUPPORTED in a cache without KVC_CACHE_PREFIX_INDEX."]
pub type kvc_prefix_query_flags = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_prefix_query {
    pub struct_size: u32,
    #[doc = " KVC_PREFIX_*; ignored outside of match and attach"]
    pub flags: u32,
    #[doc = " borrowed; [num_tokens], host; nullable if num_tokens is 0. Any numbers"]
    pub tokens: *const i32,
    #[doc = " 0..2^30"]
    pub num_tokens: i64,
    #[doc = " any number; 0 = no salt"]
    pub salt: u64,
    #[doc = " the salt begins with the page that contains this token, and earlier pages have salt 0. So tenants\ncan share a system prompt, and nothing after it. >= 0"]
    pub salt_begin: i64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_prefix_query"][::core::mem::size_of::<kvc_prefix_query>() - 40usize];
    ["Alignment of kvc_prefix_query"][::core::mem::align_of::<kvc_prefix_query>() - 8usize];
    ["Offset of field: kvc_prefix_query::struct_size"][::core::mem::offset_of!(kvc_prefix_query, struct_size) - 0usize];
    ["Offset of field: kvc_prefix_query::flags"][::core::mem::offset_of!(kvc_prefix_query, flags) - 4usize];
    ["Offset of field: kvc_prefix_query::tokens"][::core::mem::offset_of!(kvc_prefix_query, tokens) - 8usize];
    ["Offset of field: kvc_prefix_query::num_tokens"][::core::mem::offset_of!(kvc_prefix_query, num_tokens) - 16usize];
    ["Offset of field: kvc_prefix_query::salt"][::core::mem::offset_of!(kvc_prefix_query, salt) - 24usize];
    ["Offset of field: kvc_prefix_query::salt_begin"][::core::mem::offset_of!(kvc_prefix_query, salt_begin) - 32usize];
};
#[doc = " What the index holds of a query."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_prefix_hit {
    pub struct_size: u32,
    #[doc = " the group that makes `tokens` smaller than known_tokens and the query allow; -1 = none. It lacks\nthe page that begins at `tokens`, or (recurrent) a state at a later position"]
    pub limited_by: i32,
    #[doc = " the longest prefix that every group can serve"]
    pub tokens: i64,
    #[doc = " of these, the tokens in a last page that is not full: attach copies it"]
    pub copied_tokens: i64,
    #[doc = " tokens that were published in this order, even if their pages were evicted"]
    pub known_tokens: i64,
    #[doc = " with tiers: what `tokens` would be after kvc_prefix_load, as far as they have searched; else `tokens`"]
    pub load_tokens: i64,
    #[doc = " with tiers: how long that load takes, as the tiers measured it; 0 = nothing to load, or not measured"]
    pub load_ns: i64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_prefix_hit"][::core::mem::size_of::<kvc_prefix_hit>() - 48usize];
    ["Alignment of kvc_prefix_hit"][::core::mem::align_of::<kvc_prefix_hit>() - 8usize];
    ["Offset of field: kvc_prefix_hit::struct_size"][::core::mem::offset_of!(kvc_prefix_hit, struct_size) - 0usize];
    ["Offset of field: kvc_prefix_hit::limited_by"][::core::mem::offset_of!(kvc_prefix_hit, limited_by) - 4usize];
    ["Offset of field: kvc_prefix_hit::tokens"][::core::mem::offset_of!(kvc_prefix_hit, tokens) - 8usize];
    ["Offset of field: kvc_prefix_hit::copied_tokens"]
        [::core::mem::offset_of!(kvc_prefix_hit, copied_tokens) - 16usize];
    ["Offset of field: kvc_prefix_hit::known_tokens"][::core::mem::offset_of!(kvc_prefix_hit, known_tokens) - 24usize];
    ["Offset of field: kvc_prefix_hit::load_tokens"][::core::mem::offset_of!(kvc_prefix_hit, load_tokens) - 32usize];
    ["Offset of field: kvc_prefix_hit::load_ns"][::core::mem::offset_of!(kvc_prefix_hit, load_ns) - 40usize];
};
#[doc = " no tier stores what this publish adds"]
pub const KVC_PREFIX_KEEP_PRIVATE: kvc_prefix_options_flags = 1;
pub type kvc_prefix_options_flags = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_prefix_options {
    pub struct_size: u32,
    #[doc = " 0..100: prefixes of lower priority are evicted first. Tokens that several publishes share have the\nhighest of their priorities"]
    pub priority: i32,
    #[doc = " 0 = none. Any other number: kvc_prefix_drop_session drops what no other session published"]
    pub session: u64,
    #[doc = " 0 = no limit. Else, in the unit of kvc_cache_set_time: the tokens expire this long after now. They\nare still found, but evicted before all others"]
    pub time_to_live: i64,
    #[doc = " KVC_PREFIX_KEEP_PRIVATE or 0"]
    pub flags: u32,
    #[doc = " 0"]
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_prefix_options"][::core::mem::size_of::<kvc_prefix_options>() - 32usize];
    ["Alignment of kvc_prefix_options"][::core::mem::align_of::<kvc_prefix_options>() - 8usize];
    ["Offset of field: kvc_prefix_options::struct_size"]
        [::core::mem::offset_of!(kvc_prefix_options, struct_size) - 0usize];
    ["Offset of field: kvc_prefix_options::priority"][::core::mem::offset_of!(kvc_prefix_options, priority) - 4usize];
    ["Offset of field: kvc_prefix_options::session"][::core::mem::offset_of!(kvc_prefix_options, session) - 8usize];
    ["Offset of field: kvc_prefix_options::time_to_live"]
        [::core::mem::offset_of!(kvc_prefix_options, time_to_live) - 16usize];
    ["Offset of field: kvc_prefix_options::flags"][::core::mem::offset_of!(kvc_prefix_options, flags) - 24usize];
    ["Offset of field: kvc_prefix_options::reserved"][::core::mem::offset_of!(kvc_prefix_options, reserved) - 28usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_prefix_published {
    pub struct_size: u32,
    pub reserved: u32,
    #[doc = " tokens of the query that the index holds now; fewer than all if it is full of pages in use"]
    pub known_tokens: i64,
    #[doc = " pages that the index did not hold before, in all groups"]
    pub pages_added: i64,
    #[doc = " pages of the sequence that became free, because the index had others with the same tokens"]
    pub pages_freed: i64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_prefix_published"][::core::mem::size_of::<kvc_prefix_published>() - 32usize];
    ["Alignment of kvc_prefix_published"][::core::mem::align_of::<kvc_prefix_published>() - 8usize];
    ["Offset of field: kvc_prefix_published::struct_size"]
        [::core::mem::offset_of!(kvc_prefix_published, struct_size) - 0usize];
    ["Offset of field: kvc_prefix_published::reserved"]
        [::core::mem::offset_of!(kvc_prefix_published, reserved) - 4usize];
    ["Offset of field: kvc_prefix_published::known_tokens"]
        [::core::mem::offset_of!(kvc_prefix_published, known_tokens) - 8usize];
    ["Offset of field: kvc_prefix_published::pages_added"]
        [::core::mem::offset_of!(kvc_prefix_published, pages_added) - 16usize];
    ["Offset of field: kvc_prefix_published::pages_freed"]
        [::core::mem::offset_of!(kvc_prefix_published, pages_freed) - 24usize];
};
#[doc = " ============================================================================================\n 13  Page keys: names of tokens outside of a cache\n ============================================================================================\n A page key names the content of one page of tokens in 32 bytes. It is equal in every process, on every machine and in every\n language. docs/reference/keys.md defines the bytes that are hashed (SHA-256), and has test vectors. A cache does not need keys:\n its prefix index compares tokens."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_page_keys_args {
    pub struct_size: u32,
    #[doc = " 0"]
    pub reserved: u32,
    #[doc = " [num_tokens]; nullable if num_tokens is 0. Any numbers"]
    pub tokens: *const i32,
    #[doc = " 0..2^30; a last page that is not full has no key"]
    pub num_tokens: i64,
    #[doc = " 1..2^20"]
    pub page_size: i64,
    #[doc = " position of tokens[0] in its sequence: a multiple of page_size up to 2^30, 0 without a parent"]
    pub begin: i64,
    #[doc = " nullable: [32], the key of the page that ends at begin. It covers fingerprint and adapter"]
    pub parent: *const u8,
    #[doc = " [32]: computed by the engine from weights, quantisation and tokenizer; nullable with a parent"]
    pub fingerprint: *const u8,
    #[doc = " [adapter_bytes]; nullable if adapter_bytes is 0 = no adapter"]
    pub adapter: *const u8,
    #[doc = " 0..2^20"]
    pub adapter_bytes: i64,
    #[doc = " [salt_bytes]; nullable if salt_bytes is 0 = no salt"]
    pub salt: *const u8,
    #[doc = " 0..2^20"]
    pub salt_bytes: i64,
    #[doc = " the salt begins with the page that contains this position; >= 0"]
    pub salt_begin: i64,
    #[doc = " spans of tokens that stand for an image or the like; 0..2^30"]
    pub num_media: i64,
    #[doc = " [num_media]: position in the sequence of the first token of each, ascending"]
    pub media_begins: *const i64,
    #[doc = " [num_media]: tokens of each, > 0. The spans do not overlap"]
    pub media_tokens: *const i64,
    #[doc = " [num_media, 32]: of the content, and of what changes how the model sees it"]
    pub media_hashes: *const u8,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_page_keys_args"][::core::mem::size_of::<kvc_page_keys_args>() - 128usize];
    ["Alignment of kvc_page_keys_args"][::core::mem::align_of::<kvc_page_keys_args>() - 8usize];
    ["Offset of field: kvc_page_keys_args::struct_size"]
        [::core::mem::offset_of!(kvc_page_keys_args, struct_size) - 0usize];
    ["Offset of field: kvc_page_keys_args::reserved"][::core::mem::offset_of!(kvc_page_keys_args, reserved) - 4usize];
    ["Offset of field: kvc_page_keys_args::tokens"][::core::mem::offset_of!(kvc_page_keys_args, tokens) - 8usize];
    ["Offset of field: kvc_page_keys_args::num_tokens"]
        [::core::mem::offset_of!(kvc_page_keys_args, num_tokens) - 16usize];
    ["Offset of field: kvc_page_keys_args::page_size"]
        [::core::mem::offset_of!(kvc_page_keys_args, page_size) - 24usize];
    ["Offset of field: kvc_page_keys_args::begin"][::core::mem::offset_of!(kvc_page_keys_args, begin) - 32usize];
    ["Offset of field: kvc_page_keys_args::parent"][::core::mem::offset_of!(kvc_page_keys_args, parent) - 40usize];
    ["Offset of field: kvc_page_keys_args::fingerprint"]
        [::core::mem::offset_of!(kvc_page_keys_args, fingerprint) - 48usize];
    ["Offset of field: kvc_page_keys_args::adapter"][::core::mem::offset_of!(kvc_page_keys_args, adapter) - 56usize];
    ["Offset of field: kvc_page_keys_args::adapter_bytes"]
        [::core::mem::offset_of!(kvc_page_keys_args, adapter_bytes) - 64usize];
    ["Offset of field: kvc_page_keys_args::salt"][::core::mem::offset_of!(kvc_page_keys_args, salt) - 72usize];
    ["Offset of field: kvc_page_keys_args::salt_bytes"]
        [::core::mem::offset_of!(kvc_page_keys_args, salt_bytes) - 80usize];
    ["Offset of field: kvc_page_keys_args::salt_begin"]
        [::core::mem::offset_of!(kvc_page_keys_args, salt_begin) - 88usize];
    ["Offset of field: kvc_page_keys_args::num_media"]
        [::core::mem::offset_of!(kvc_page_keys_args, num_media) - 96usize];
    ["Offset of field: kvc_page_keys_args::media_begins"]
        [::core::mem::offset_of!(kvc_page_keys_args, media_begins) - 104usize];
    ["Offset of field: kvc_page_keys_args::media_tokens"]
        [::core::mem::offset_of!(kvc_page_keys_args, media_tokens) - 112usize];
    ["Offset of field: kvc_page_keys_args::media_hashes"]
        [::core::mem::offset_of!(kvc_page_keys_args, media_hashes) - 120usize];
};
#[doc = " the page with this key can be found in this group"]
pub const KVC_EVENT_STORED: kvc_event_kind = 1;
#[doc = " the page can no longer be found: it was evicted or dropped"]
pub const KVC_EVENT_REMOVED: kvc_event_kind = 2;
#[doc = " no page can be found in any group"]
pub const KVC_EVENT_CLEARED: kvc_event_kind = 3;
#[doc = " ============================================================================================\n 14  Events: what the prefix index holds, told to others\n ============================================================================================\n A router sends a request to the engine that holds most of its prompt. Events tell it how the prefix index of each engine\n changes: a whole page can now be found (stored), a page can no longer be found (removed), or no page can be found\n (cleared). A cache with events_capacity keeps the newest events in a ring buffer. No call waits for room in it: a new\n event replaces the oldest one.\n\n Events are numbered from 0. A reader says which number it needs next, and learns which numbers it got:\n\n   kvc_events_args args;  kvc_events_args_init(&args);\n   args.events = events;  args.tokens = tokens;  args.capacity = 256;         // kvc_event[256], int32_t[256 * page_size]\n   kvc_events_range range;  kvc_events_range_init(&range);\n   for (;;) {\n     if (kvc_events_read(cache, &args, &range, &error)) return report(error.message);\n     if (range.epoch != epoch || range.begin != args.next) return start_again();   // another cache, or events are lost\n     for (int64_t i = 0; i < range.count; i++) apply(&events[i], tokens + i * page_size);\n     args.next = range.end;\n   }\n\n start_again forgets what it knew, takes a snapshot (kvc_events_snapshot), and reads on from the snapshot's range.end. A snapshot\n and the events after it give exactly the pages that the index holds.\n\n   Pages     Events name whole pages by their key (section 13), with the query's salt as 8 bytes, little-endian, if it is not 0.\n             Each group has its own events for a page. A recurrent group has events only for states at the end of a whole\n             page.\n   Bytes     Instead of records, a call can write one message as vLLM's consumers read it: docs/reference/events.md.\n Every call of this section is UNSUPPORTED in a cache whose events_capacity is 0."]
pub type kvc_event_kind = ::core::ffi::c_uint;
#[doc = " a stored page that is not the first of its sequence"]
pub const KVC_EVENT_HAS_PARENT: kvc_event_flags = 1;
#[doc = " a stored page under a salt that is not 0"]
pub const KVC_EVENT_SALTED: kvc_event_flags = 2;
pub type kvc_event_flags = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_event {
    #[doc = " in the epoch, from 0; in a snapshot 0"]
    pub number: u64,
    #[doc = " KVC_EVENT_*"]
    pub kind: i32,
    #[doc = " -1 = all"]
    pub group: i32,
    #[doc = " KVC_EVENT_HAS_PARENT, KVC_EVENT_SALTED"]
    pub flags: u32,
    pub reserved: u32,
    #[doc = " stored: of the page's first token in its sequence"]
    pub position: i64,
    #[doc = " stored: the only session that published it; 0 = none, or several"]
    pub session: u64,
    #[doc = " not of KVC_EVENT_CLEARED"]
    pub key: [u8; 32usize],
    #[doc = " key of the page before, if KVC_EVENT_HAS_PARENT"]
    pub parent: [u8; 32usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_event"][::core::mem::size_of::<kvc_event>() - 104usize];
    ["Alignment of kvc_event"][::core::mem::align_of::<kvc_event>() - 8usize];
    ["Offset of field: kvc_event::number"][::core::mem::offset_of!(kvc_event, number) - 0usize];
    ["Offset of field: kvc_event::kind"][::core::mem::offset_of!(kvc_event, kind) - 8usize];
    ["Offset of field: kvc_event::group"][::core::mem::offset_of!(kvc_event, group) - 12usize];
    ["Offset of field: kvc_event::flags"][::core::mem::offset_of!(kvc_event, flags) - 16usize];
    ["Offset of field: kvc_event::reserved"][::core::mem::offset_of!(kvc_event, reserved) - 20usize];
    ["Offset of field: kvc_event::position"][::core::mem::offset_of!(kvc_event, position) - 24usize];
    ["Offset of field: kvc_event::session"][::core::mem::offset_of!(kvc_event, session) - 32usize];
    ["Offset of field: kvc_event::key"][::core::mem::offset_of!(kvc_event, key) - 40usize];
    ["Offset of field: kvc_event::parent"][::core::mem::offset_of!(kvc_event, parent) - 72usize];
};
#[doc = " bytes: each event is an array, as in older consumers. The default is a map"]
pub const KVC_EVENTS_ARRAYS: kvc_events_flags = 1;
#[doc = " bytes: a key is its low 64 bits as an integer. The default is 32 bytes"]
pub const KVC_EVENTS_SHORT_HASHES: kvc_events_flags = 2;
pub type kvc_events_flags = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_events_args {
    pub struct_size: u32,
    #[doc = " KVC_EVENTS_*"]
    pub flags: u32,
    #[doc = " kvc_events_read: the number of the first event that the reader needs"]
    pub next: u64,
    #[doc = " [capacity], filled; nullable. Give events, or bytes, or neither"]
    pub events: *mut kvc_event,
    #[doc = " [capacity, page_size], filled: the tokens of stored pages, else 0; nullable"]
    pub tokens: *mut i32,
    #[doc = " of events"]
    pub capacity: i64,
    #[doc = " [capacity_bytes], filled: one message; nullable"]
    pub bytes: *mut u8,
    pub capacity_bytes: i64,
    #[doc = " bytes: of the message, in seconds"]
    pub timestamp: f64,
    #[doc = " bytes: -1 = nil"]
    pub data_parallel_rank: i32,
    #[doc = " sizeof(kvc_event), with events"]
    pub event_size: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_events_args"][::core::mem::size_of::<kvc_events_args>() - 72usize];
    ["Alignment of kvc_events_args"][::core::mem::align_of::<kvc_events_args>() - 8usize];
    ["Offset of field: kvc_events_args::struct_size"][::core::mem::offset_of!(kvc_events_args, struct_size) - 0usize];
    ["Offset of field: kvc_events_args::flags"][::core::mem::offset_of!(kvc_events_args, flags) - 4usize];
    ["Offset of field: kvc_events_args::next"][::core::mem::offset_of!(kvc_events_args, next) - 8usize];
    ["Offset of field: kvc_events_args::events"][::core::mem::offset_of!(kvc_events_args, events) - 16usize];
    ["Offset of field: kvc_events_args::tokens"][::core::mem::offset_of!(kvc_events_args, tokens) - 24usize];
    ["Offset of field: kvc_events_args::capacity"][::core::mem::offset_of!(kvc_events_args, capacity) - 32usize];
    ["Offset of field: kvc_events_args::bytes"][::core::mem::offset_of!(kvc_events_args, bytes) - 40usize];
    ["Offset of field: kvc_events_args::capacity_bytes"]
        [::core::mem::offset_of!(kvc_events_args, capacity_bytes) - 48usize];
    ["Offset of field: kvc_events_args::timestamp"][::core::mem::offset_of!(kvc_events_args, timestamp) - 56usize];
    ["Offset of field: kvc_events_args::data_parallel_rank"]
        [::core::mem::offset_of!(kvc_events_args, data_parallel_rank) - 64usize];
    ["Offset of field: kvc_events_args::event_size"][::core::mem::offset_of!(kvc_events_args, event_size) - 68usize];
};
#[doc = " What a call of this section returned."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_events_range {
    pub struct_size: u32,
    pub reserved: u32,
    #[doc = " of this cache: a random number from the system, chosen when the cache was created, and never 0"]
    pub epoch: u64,
    #[doc = " number of the first event that was returned. Above args->next: the ones between are lost"]
    pub begin: u64,
    #[doc = " number of the event after the last one that was returned: the next to read"]
    pub end: u64,
    #[doc = " number that the next event will get. Above `end`: there is more to read"]
    pub newest: u64,
    #[doc = " events or pages that were returned; without a buffer, what there is"]
    pub count: i64,
    #[doc = " bytes that were written; for a snapshot without a buffer, the size that it needs"]
    pub num_bytes: i64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_events_range"][::core::mem::size_of::<kvc_events_range>() - 56usize];
    ["Alignment of kvc_events_range"][::core::mem::align_of::<kvc_events_range>() - 8usize];
    ["Offset of field: kvc_events_range::struct_size"][::core::mem::offset_of!(kvc_events_range, struct_size) - 0usize];
    ["Offset of field: kvc_events_range::reserved"][::core::mem::offset_of!(kvc_events_range, reserved) - 4usize];
    ["Offset of field: kvc_events_range::epoch"][::core::mem::offset_of!(kvc_events_range, epoch) - 8usize];
    ["Offset of field: kvc_events_range::begin"][::core::mem::offset_of!(kvc_events_range, begin) - 16usize];
    ["Offset of field: kvc_events_range::end"][::core::mem::offset_of!(kvc_events_range, end) - 24usize];
    ["Offset of field: kvc_events_range::newest"][::core::mem::offset_of!(kvc_events_range, newest) - 32usize];
    ["Offset of field: kvc_events_range::count"][::core::mem::offset_of!(kvc_events_range, count) - 40usize];
    ["Offset of field: kvc_events_range::num_bytes"][::core::mem::offset_of!(kvc_events_range, num_bytes) - 48usize];
};
#[doc = " Takes the next bytes of a saved sequence.\n   user   kvc_save_args.write_user\n   data   borrowed; [bytes]\n Returns: 0, or any other number if it failed: it appears in the message. Called on the thread of the call, without a lock."]
pub type kvc_write_fn = ::core::option::Option<
    unsafe extern "C" fn(user: *mut ::core::ffi::c_void, data: *const ::core::ffi::c_void, bytes: i64) -> i32,
>;
#[doc = " Gives the next bytes of a saved sequence.\n   user   kvc_load_args.read_user\n   data   filled; [bytes]\n Returns: how many bytes it gave, 1..bytes; 0 at the end; below 0 if it failed: the number appears in the message. Called as\n kvc_write_fn."]
pub type kvc_read_fn = ::core::option::Option<
    unsafe extern "C" fn(user: *mut ::core::ffi::c_void, data: *mut ::core::ffi::c_void, bytes: i64) -> i64,
>;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_save_args {
    pub struct_size: u32,
    #[doc = " 0"]
    pub flags: u32,
    #[doc = " borrowed; nullable if write is given. The file appears whole, or not at all: the bytes go to a new\nfile in the same folder, which is synchronised with the disk and then renamed"]
    pub path: *const ::core::ffi::c_char,
    #[doc = " nullable if path is given: gives the bytes to the caller instead"]
    pub write: kvc_write_fn,
    pub write_user: *mut ::core::ffi::c_void,
    #[doc = " borrowed; nullable: not saved. [num_tokens]: the ids of the sequence's tokens"]
    pub tokens: *const i32,
    #[doc = " the length of the sequence; 0 without tokens"]
    pub num_tokens: i64,
    #[doc = " payload bytes that one checksum covers, and that a load holds at once: a power of two,\n4096..2^24; 0 = 2^20"]
    pub section_bytes: i64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_save_args"][::core::mem::size_of::<kvc_save_args>() - 56usize];
    ["Alignment of kvc_save_args"][::core::mem::align_of::<kvc_save_args>() - 8usize];
    ["Offset of field: kvc_save_args::struct_size"][::core::mem::offset_of!(kvc_save_args, struct_size) - 0usize];
    ["Offset of field: kvc_save_args::flags"][::core::mem::offset_of!(kvc_save_args, flags) - 4usize];
    ["Offset of field: kvc_save_args::path"][::core::mem::offset_of!(kvc_save_args, path) - 8usize];
    ["Offset of field: kvc_save_args::write"][::core::mem::offset_of!(kvc_save_args, write) - 16usize];
    ["Offset of field: kvc_save_args::write_user"][::core::mem::offset_of!(kvc_save_args, write_user) - 24usize];
    ["Offset of field: kvc_save_args::tokens"][::core::mem::offset_of!(kvc_save_args, tokens) - 32usize];
    ["Offset of field: kvc_save_args::num_tokens"][::core::mem::offset_of!(kvc_save_args, num_tokens) - 40usize];
    ["Offset of field: kvc_save_args::section_bytes"][::core::mem::offset_of!(kvc_save_args, section_bytes) - 48usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_load_args {
    pub struct_size: u32,
    #[doc = " 0"]
    pub flags: u32,
    #[doc = " borrowed; nullable if read is given"]
    pub path: *const ::core::ffi::c_char,
    #[doc = " nullable if path is given: the bytes come from the caller"]
    pub read: kvc_read_fn,
    pub read_user: *mut ::core::ffi::c_void,
    #[doc = " nullable if capacity is 0; [capacity], filled with the token ids. Undefined after a failure"]
    pub tokens: *mut i32,
    #[doc = " 0: the ids are not wanted"]
    pub capacity: i64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_load_args"][::core::mem::size_of::<kvc_load_args>() - 48usize];
    ["Alignment of kvc_load_args"][::core::mem::align_of::<kvc_load_args>() - 8usize];
    ["Offset of field: kvc_load_args::struct_size"][::core::mem::offset_of!(kvc_load_args, struct_size) - 0usize];
    ["Offset of field: kvc_load_args::flags"][::core::mem::offset_of!(kvc_load_args, flags) - 4usize];
    ["Offset of field: kvc_load_args::path"][::core::mem::offset_of!(kvc_load_args, path) - 8usize];
    ["Offset of field: kvc_load_args::read"][::core::mem::offset_of!(kvc_load_args, read) - 16usize];
    ["Offset of field: kvc_load_args::read_user"][::core::mem::offset_of!(kvc_load_args, read_user) - 24usize];
    ["Offset of field: kvc_load_args::tokens"][::core::mem::offset_of!(kvc_load_args, tokens) - 32usize];
    ["Offset of field: kvc_load_args::capacity"][::core::mem::offset_of!(kvc_load_args, capacity) - 40usize];
};
#[doc = " A tier of the engine's own: kvcache_tier.h defines it."]
#[repr(C)]
#[derive(Debug)]
pub struct kvc_tier {
    _unused: [u8; 0],
}
#[doc = " an object is on the disk before it becomes visible"]
pub const KVC_TIER_SYNC_DATA: kvc_tier_sync = 0;
#[doc = " the system decides when to write it. After a loss of power it can be missing, but is never\nwrong"]
pub const KVC_TIER_SYNC_NONE: kvc_tier_sync = 1;
#[doc = " as DATA, and the name of the object is on the disk too. So a stored object survives a loss of\npower"]
pub const KVC_TIER_SYNC_FULL: kvc_tier_sync = 2;
pub type kvc_tier_sync = ::core::ffi::c_uint;
#[doc = " the tier is memory of this process, of at most capacity_bytes. It holds what the pools evict"]
pub const KVC_TIER_HOST: kvc_tier_flag = 1;
pub type kvc_tier_flag = ::core::ffi::c_uint;
#[doc = " all"]
pub const KVC_TIER_STORE_PUBLISHED: kvc_tier_store = 0;
#[doc = " those that the index already had before the publish, because another request had published\nthem"]
pub const KVC_TIER_STORE_REUSED: kvc_tier_store = 1;
#[doc = " none: the tier is read only, and takes no suspended sequence"]
pub const KVC_TIER_STORE_NOTHING: kvc_tier_store = 2;
#[doc = " Which published pages a tier stores."]
pub type kvc_tier_store = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_tier_config {
    pub struct_size: u32,
    #[doc = " disk: KVC_TIER_SYNC_*"]
    pub sync: i32,
    #[doc = " nullable; disk: a folder, made if it does not exist. Several processes may share it"]
    pub directory: *const ::core::ffi::c_char,
    #[doc = " nullable; adopted: a tier of the engine. One of directory, tier and KVC_TIER_HOST is given"]
    pub tier: *const kvc_tier,
    #[doc = " disk and host: beyond this limit, the objects that were used least recently are removed.\nDisk: 0 = no limit. Host: at least 4096; memory is taken when objects fill it"]
    pub capacity_bytes: i64,
    #[doc = " KVC_TIER_STORE_*"]
    pub store: i32,
    #[doc = " KVC_TIER_HOST or 0"]
    pub flags: u32,
    #[doc = " a publish of fewer tokens is not stored; >= 0"]
    pub min_tokens: i64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_tier_config"][::core::mem::size_of::<kvc_tier_config>() - 48usize];
    ["Alignment of kvc_tier_config"][::core::mem::align_of::<kvc_tier_config>() - 8usize];
    ["Offset of field: kvc_tier_config::struct_size"][::core::mem::offset_of!(kvc_tier_config, struct_size) - 0usize];
    ["Offset of field: kvc_tier_config::sync"][::core::mem::offset_of!(kvc_tier_config, sync) - 4usize];
    ["Offset of field: kvc_tier_config::directory"][::core::mem::offset_of!(kvc_tier_config, directory) - 8usize];
    ["Offset of field: kvc_tier_config::tier"][::core::mem::offset_of!(kvc_tier_config, tier) - 16usize];
    ["Offset of field: kvc_tier_config::capacity_bytes"]
        [::core::mem::offset_of!(kvc_tier_config, capacity_bytes) - 24usize];
    ["Offset of field: kvc_tier_config::store"][::core::mem::offset_of!(kvc_tier_config, store) - 32usize];
    ["Offset of field: kvc_tier_config::flags"][::core::mem::offset_of!(kvc_tier_config, flags) - 36usize];
    ["Offset of field: kvc_tier_config::min_tokens"][::core::mem::offset_of!(kvc_tier_config, min_tokens) - 40usize];
};
#[doc = " Work in the background. 0 = none."]
pub type kvc_job = u64;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_prefix_load_options {
    pub struct_size: u32,
    #[doc = " as in kvc_prefix_options: of the pages that are loaded"]
    pub priority: i32,
    #[doc = " likewise"]
    pub session: u64,
    #[doc = " likewise"]
    pub time_to_live: i64,
    #[doc = " the time to compute one token, in nanoseconds. Nothing is loaded if loading would take longer by\nthe tiers' measurements. 0 = load in any case"]
    pub token_ns: i64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_prefix_load_options"][::core::mem::size_of::<kvc_prefix_load_options>() - 32usize];
    ["Alignment of kvc_prefix_load_options"][::core::mem::align_of::<kvc_prefix_load_options>() - 8usize];
    ["Offset of field: kvc_prefix_load_options::struct_size"]
        [::core::mem::offset_of!(kvc_prefix_load_options, struct_size) - 0usize];
    ["Offset of field: kvc_prefix_load_options::priority"]
        [::core::mem::offset_of!(kvc_prefix_load_options, priority) - 4usize];
    ["Offset of field: kvc_prefix_load_options::session"]
        [::core::mem::offset_of!(kvc_prefix_load_options, session) - 8usize];
    ["Offset of field: kvc_prefix_load_options::time_to_live"]
        [::core::mem::offset_of!(kvc_prefix_load_options, time_to_live) - 16usize];
    ["Offset of field: kvc_prefix_load_options::token_ns"]
        [::core::mem::offset_of!(kvc_prefix_load_options, token_ns) - 24usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_job_info {
    pub struct_size: u32,
    #[doc = " 1 = the job has ended, and its id is stale from now on"]
    pub done: i32,
    #[doc = " done: tokens of the query that were loaded. They are findable now. Suspend and resume: the sequence's\nlength"]
    pub tokens: i64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_job_info"][::core::mem::size_of::<kvc_job_info>() - 16usize];
    ["Alignment of kvc_job_info"][::core::mem::align_of::<kvc_job_info>() - 8usize];
    ["Offset of field: kvc_job_info::struct_size"][::core::mem::offset_of!(kvc_job_info, struct_size) - 0usize];
    ["Offset of field: kvc_job_info::done"][::core::mem::offset_of!(kvc_job_info, done) - 4usize];
    ["Offset of field: kvc_job_info::tokens"][::core::mem::offset_of!(kvc_job_info, tokens) - 8usize];
};
#[doc = " Traffic between the pools and all tiers since create, in pages of groups."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_tier_traffic {
    pub struct_size: u32,
    pub num_tiers: i32,
    #[doc = " queued for their store, or being stored. 0: the tiers have all that they will get"]
    pub pages_waiting: i64,
    pub pages_stored: i64,
    #[doc = " evicted before they were copied, or too many for the queue"]
    pub pages_dropped: i64,
    #[doc = " that a tier refused, or failed to store"]
    pub pages_not_stored: i64,
    #[doc = " of jobs that run"]
    pub pages_loading: i64,
    pub pages_loaded: i64,
    #[doc = " that a tier no longer had, or whose object did not match"]
    pub pages_not_loaded: i64,
    #[doc = " sequences that are suspended now"]
    pub sequences_suspended: i64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_tier_traffic"][::core::mem::size_of::<kvc_tier_traffic>() - 72usize];
    ["Alignment of kvc_tier_traffic"][::core::mem::align_of::<kvc_tier_traffic>() - 8usize];
    ["Offset of field: kvc_tier_traffic::struct_size"][::core::mem::offset_of!(kvc_tier_traffic, struct_size) - 0usize];
    ["Offset of field: kvc_tier_traffic::num_tiers"][::core::mem::offset_of!(kvc_tier_traffic, num_tiers) - 4usize];
    ["Offset of field: kvc_tier_traffic::pages_waiting"]
        [::core::mem::offset_of!(kvc_tier_traffic, pages_waiting) - 8usize];
    ["Offset of field: kvc_tier_traffic::pages_stored"]
        [::core::mem::offset_of!(kvc_tier_traffic, pages_stored) - 16usize];
    ["Offset of field: kvc_tier_traffic::pages_dropped"]
        [::core::mem::offset_of!(kvc_tier_traffic, pages_dropped) - 24usize];
    ["Offset of field: kvc_tier_traffic::pages_not_stored"]
        [::core::mem::offset_of!(kvc_tier_traffic, pages_not_stored) - 32usize];
    ["Offset of field: kvc_tier_traffic::pages_loading"]
        [::core::mem::offset_of!(kvc_tier_traffic, pages_loading) - 40usize];
    ["Offset of field: kvc_tier_traffic::pages_loaded"]
        [::core::mem::offset_of!(kvc_tier_traffic, pages_loaded) - 48usize];
    ["Offset of field: kvc_tier_traffic::pages_not_loaded"]
        [::core::mem::offset_of!(kvc_tier_traffic, pages_not_loaded) - 56usize];
    ["Offset of field: kvc_tier_traffic::sequences_suspended"]
        [::core::mem::offset_of!(kvc_tier_traffic, sequences_suspended) - 64usize];
};
#[doc = " How bytes reach another cache: kvcache_transport.h defines it."]
#[repr(C)]
#[derive(Debug)]
pub struct kvc_transport {
    _unused: [u8; 0],
}
#[doc = " Id of a transfer. 0 = none."]
pub type kvc_transfer = u64;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_receive_args {
    pub struct_size: u32,
    #[doc = " how long the peer may be silent; 0 = 30000; 1..3600000. Both sides use it"]
    pub timeout_ms: i32,
    #[doc = " the length of the sequence when the transfer is done; >= 1"]
    pub num_tokens: i64,
    #[doc = " 0, or a sequence with the first tokens, as kvc_prefix_attach gives it: only the others travel. The new\nsequence shares its whole pages. The cache must have no group of states"]
    pub prefix: kvc_seq,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_receive_args"][::core::mem::size_of::<kvc_receive_args>() - 24usize];
    ["Alignment of kvc_receive_args"][::core::mem::align_of::<kvc_receive_args>() - 8usize];
    ["Offset of field: kvc_receive_args::struct_size"][::core::mem::offset_of!(kvc_receive_args, struct_size) - 0usize];
    ["Offset of field: kvc_receive_args::timeout_ms"][::core::mem::offset_of!(kvc_receive_args, timeout_ms) - 4usize];
    ["Offset of field: kvc_receive_args::num_tokens"][::core::mem::offset_of!(kvc_receive_args, num_tokens) - 8usize];
    ["Offset of field: kvc_receive_args::prefix"][::core::mem::offset_of!(kvc_receive_args, prefix) - 16usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_transfer_info {
    pub struct_size: u32,
    #[doc = " 1 = the receiver has everything, and the id is stale from now on"]
    pub done: i32,
    #[doc = " that all layers have received, or sent; the prefix and what windows skip included"]
    pub tokens: i64,
    #[doc = " of rows and states, sent or received so far"]
    pub bytes: i64,
    #[doc = " receiver, done: the new sequence; else 0"]
    pub sequence: kvc_seq,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_transfer_info"][::core::mem::size_of::<kvc_transfer_info>() - 32usize];
    ["Alignment of kvc_transfer_info"][::core::mem::align_of::<kvc_transfer_info>() - 8usize];
    ["Offset of field: kvc_transfer_info::struct_size"]
        [::core::mem::offset_of!(kvc_transfer_info, struct_size) - 0usize];
    ["Offset of field: kvc_transfer_info::done"][::core::mem::offset_of!(kvc_transfer_info, done) - 4usize];
    ["Offset of field: kvc_transfer_info::tokens"][::core::mem::offset_of!(kvc_transfer_info, tokens) - 8usize];
    ["Offset of field: kvc_transfer_info::bytes"][::core::mem::offset_of!(kvc_transfer_info, bytes) - 16usize];
    ["Offset of field: kvc_transfer_info::sequence"][::core::mem::offset_of!(kvc_transfer_info, sequence) - 24usize];
};
#[doc = " BEGIN GENERATED by scripts/generate_api.py"]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_api {
    pub struct_size: u32,
    #[doc = " KVC_ABI_VERSION of the library"]
    pub abi: u32,
    pub version: ::core::option::Option<unsafe extern "C" fn() -> *const ::core::ffi::c_char>,
    pub abi_version: ::core::option::Option<unsafe extern "C" fn() -> u32>,
    pub build_info: ::core::option::Option<unsafe extern "C" fn() -> *const ::core::ffi::c_char>,
    pub status_name: ::core::option::Option<unsafe extern "C" fn(status: kvc_status) -> *const ::core::ffi::c_char>,
    pub context_create: ::core::option::Option<
        unsafe extern "C" fn(
            config: *const kvc_context_config,
            context: *mut *mut kvc_context,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub context_destroy: ::core::option::Option<unsafe extern "C" fn(context: *mut kvc_context)>,
    pub context_describe: ::core::option::Option<
        unsafe extern "C" fn(
            context: *mut kvc_context,
            buffer: *mut ::core::ffi::c_char,
            capacity: i64,
            length: *mut i64,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub cache_estimate: ::core::option::Option<
        unsafe extern "C" fn(
            context: *mut kvc_context,
            config: *const kvc_cache_config,
            group: i32,
            estimate: *mut kvc_estimate,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub cache_create: ::core::option::Option<
        unsafe extern "C" fn(
            context: *mut kvc_context,
            config: *const kvc_cache_config,
            cache: *mut *mut kvc_cache,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub cache_destroy: ::core::option::Option<unsafe extern "C" fn(cache: *mut kvc_cache)>,
    pub cache_clear:
        ::core::option::Option<unsafe extern "C" fn(cache: *mut kvc_cache, error: *mut kvc_error) -> kvc_status>,
    pub seq_add: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            n: i64,
            sequences: *mut kvc_seq,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub seq_remove: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            n: i64,
            sequences: *const kvc_seq,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub seq_fork: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            n: i64,
            parents: *const kvc_seq,
            positions: *const i64,
            children: *mut kvc_seq,
            stream: *mut ::core::ffi::c_void,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub seq_truncate: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            n: i64,
            sequences: *const kvc_seq,
            lengths: *const i64,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub seq_lengths: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            n: i64,
            sequences: *const kvc_seq,
            lengths: *mut i64,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub seq_pages: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            sequence: kvc_seq,
            group: i32,
            pages: *mut i32,
            capacity: i64,
            count: *mut i64,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub seq_nearest_position: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            sequence: kvc_seq,
            position: i64,
            before: *mut i64,
            after: *mut i64,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub seq_max_append: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            n: i64,
            sequences: *const kvc_seq,
            tokens: *mut i64,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub cache_can_fit: ::core::option::Option<
        unsafe extern "C" fn(cache: *mut kvc_cache, batch: *const kvc_batch, error: *mut kvc_error) -> kvc_status,
    >,
    pub forward_begin: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            batch: *const kvc_batch,
            stream: *mut ::core::ffi::c_void,
            forward: *mut kvc_forward,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub forward_append: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            forward: kvc_forward,
            layer: i32,
            args: *const kvc_append_args,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub forward_attend: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            forward: kvc_forward,
            layer: i32,
            args: *const kvc_attend_args,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub forward_end: ::core::option::Option<
        unsafe extern "C" fn(cache: *mut kvc_cache, forward: kvc_forward, error: *mut kvc_error) -> kvc_status,
    >,
    pub forward_abort: ::core::option::Option<
        unsafe extern "C" fn(cache: *mut kvc_cache, forward: kvc_forward, error: *mut kvc_error) -> kvc_status,
    >,
    pub forward_cancel: ::core::option::Option<
        unsafe extern "C" fn(cache: *mut kvc_cache, forward: kvc_forward, error: *mut kvc_error) -> kvc_status,
    >,
    pub forward_get_info: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            forward: kvc_forward,
            info: *mut kvc_forward_info,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub forward_describe: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            forward: kvc_forward,
            buffer: *mut ::core::ffi::c_char,
            capacity: i64,
            length: *mut i64,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub cache_export_pool: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            layer: i32,
            pool: i32,
            flags: u32,
            tensor: *mut *mut DLManagedTensorVersioned,
            stream: *mut ::core::ffi::c_void,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub seq_export: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            sequence: kvc_seq,
            args: *const kvc_export_args,
            exported: *mut kvc_exported,
            stream: *mut ::core::ffi::c_void,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub seq_import: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            sequence: kvc_seq,
            args: *const kvc_import_args,
            stream: *mut ::core::ffi::c_void,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub cache_stats: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            group: i32,
            stats: *mut kvc_stats,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub cache_digest: ::core::option::Option<
        unsafe extern "C" fn(cache: *mut kvc_cache, digest: *mut u64, error: *mut kvc_error) -> kvc_status,
    >,
    pub cache_check_invariants:
        ::core::option::Option<unsafe extern "C" fn(cache: *mut kvc_cache, error: *mut kvc_error) -> kvc_status>,
    pub seq_commit: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            n: i64,
            sequences: *const kvc_seq,
            leaves: *const i32,
            stream: *mut ::core::ffi::c_void,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub seq_tree_nodes: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            n: i64,
            sequences: *const kvc_seq,
            nodes: *mut i32,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub merge_states: ::core::option::Option<
        unsafe extern "C" fn(
            context: *mut kvc_context,
            args: *const kvc_merge_args,
            stream: *mut ::core::ffi::c_void,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub seq_set_rope: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            n: i64,
            sequences: *const kvc_seq,
            set: i32,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub seq_checkpoint: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            n: i64,
            sequences: *const kvc_seq,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub seq_encoder_lengths: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            group: i32,
            n: i64,
            sequences: *const kvc_seq,
            lengths: *mut i64,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub forward_load_state: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            forward: kvc_forward,
            layer: i32,
            state: i32,
            token: i32,
            tensor: *const DLTensor,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub forward_store_state: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            forward: kvc_forward,
            layer: i32,
            state: i32,
            token: i32,
            tensor: *const DLTensor,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub seq_set_streaming: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            n: i64,
            sequences: *const kvc_seq,
            sink_tokens: *const i64,
            window_tokens: *const i64,
            flags: u32,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub seq_get_streaming: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            n: i64,
            sequences: *const kvc_seq,
            sink_tokens: *mut i64,
            window_tokens: *mut i64,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub cache_take_copies: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            copies: *mut kvc_copy,
            item_size: u32,
            capacity: i64,
            count: *mut i64,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub flash_attn_with_kvcache: ::core::option::Option<
        unsafe extern "C" fn(
            context: *mut kvc_context,
            args: *const kvc_flash_attn_args,
            stream: *mut ::core::ffi::c_void,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub append_slots: ::core::option::Option<
        unsafe extern "C" fn(
            context: *mut kvc_context,
            args: *const kvc_append_slots_args,
            stream: *mut ::core::ffi::c_void,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub forward_tables: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            forward: kvc_forward,
            group: i32,
            tables: *mut kvc_tables,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub plan_create: ::core::option::Option<
        unsafe extern "C" fn(
            context: *mut kvc_context,
            config: *const kvc_plan_config,
            plan: *mut *mut kvc_plan,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub plan_destroy: ::core::option::Option<unsafe extern "C" fn(plan: *mut kvc_plan)>,
    pub plan_build: ::core::option::Option<
        unsafe extern "C" fn(
            plan: *mut kvc_plan,
            args: *const kvc_plan_args,
            stream: *mut ::core::ffi::c_void,
            generation: *mut u64,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub plan_tables: ::core::option::Option<
        unsafe extern "C" fn(
            plan: *mut kvc_plan,
            step: i32,
            tables: *mut kvc_tables,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub plan_check: ::core::option::Option<
        unsafe extern "C" fn(plan: *mut kvc_plan, generation: u64, error: *mut kvc_error) -> kvc_status,
    >,
    pub graph_create: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            config: *const kvc_graph_config,
            graph: *mut kvc_forward,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub graph_destroy: ::core::option::Option<
        unsafe extern "C" fn(cache: *mut kvc_cache, graph: kvc_forward, error: *mut kvc_error) -> kvc_status,
    >,
    pub context_check:
        ::core::option::Option<unsafe extern "C" fn(context: *mut kvc_context, error: *mut kvc_error) -> kvc_status>,
    pub prefix_match: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            query: *const kvc_prefix_query,
            hit: *mut kvc_prefix_hit,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub prefix_attach: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            query: *const kvc_prefix_query,
            stream: *mut ::core::ffi::c_void,
            hit: *mut kvc_prefix_hit,
            sequence: *mut kvc_seq,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub prefix_publish: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            sequence: kvc_seq,
            query: *const kvc_prefix_query,
            options: *const kvc_prefix_options,
            published: *mut kvc_prefix_published,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub prefix_drop: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            query: *const kvc_prefix_query,
            pages: *mut i64,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub prefix_drop_session: ::core::option::Option<
        unsafe extern "C" fn(cache: *mut kvc_cache, session: u64, pages: *mut i64, error: *mut kvc_error) -> kvc_status,
    >,
    pub prefix_set_priority: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            query: *const kvc_prefix_query,
            priority: i32,
            time_to_live: i64,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub prefix_set_session_priority: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            session: u64,
            priority: i32,
            time_to_live: i64,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub prefix_pin: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            query: *const kvc_prefix_query,
            hit: *mut kvc_prefix_hit,
            pin: *mut u64,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub prefix_unpin: ::core::option::Option<
        unsafe extern "C" fn(cache: *mut kvc_cache, pin: u64, error: *mut kvc_error) -> kvc_status,
    >,
    pub cache_set_time: ::core::option::Option<
        unsafe extern "C" fn(cache: *mut kvc_cache, now: i64, error: *mut kvc_error) -> kvc_status,
    >,
    pub page_keys: ::core::option::Option<
        unsafe extern "C" fn(args: *const kvc_page_keys_args, keys: *mut u8, error: *mut kvc_error) -> kvc_status,
    >,
    pub events_read: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            args: *const kvc_events_args,
            range: *mut kvc_events_range,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub events_snapshot: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            args: *const kvc_events_args,
            range: *mut kvc_events_range,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub seq_save: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            sequence: kvc_seq,
            args: *const kvc_save_args,
            stream: *mut ::core::ffi::c_void,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub seq_load: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            args: *const kvc_load_args,
            stream: *mut ::core::ffi::c_void,
            sequence: *mut kvc_seq,
            num_tokens: *mut i64,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub cache_add_tier: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            config: *const kvc_tier_config,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub prefix_load: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            query: *const kvc_prefix_query,
            options: *const kvc_prefix_load_options,
            hit: *mut kvc_prefix_hit,
            job: *mut kvc_job,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub job_poll: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            job: kvc_job,
            info: *mut kvc_job_info,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub job_cancel: ::core::option::Option<
        unsafe extern "C" fn(cache: *mut kvc_cache, job: kvc_job, error: *mut kvc_error) -> kvc_status,
    >,
    pub cache_job_descriptor: ::core::option::Option<
        unsafe extern "C" fn(cache: *mut kvc_cache, descriptor: *mut i32, error: *mut kvc_error) -> kvc_status,
    >,
    pub cache_tier_traffic: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            traffic: *mut kvc_tier_traffic,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub seq_exclusive_pages: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            group: i32,
            n: i64,
            sequences: *const kvc_seq,
            pages: *mut i64,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub seq_suspend: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            sequence: kvc_seq,
            job: *mut kvc_job,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub seq_resume: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            sequence: kvc_seq,
            job: *mut kvc_job,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub forward_select: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            forward: kvc_forward,
            layer: i32,
            args: *const kvc_select_args,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub cache_describe: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            buffer: *mut ::core::ffi::c_char,
            capacity: i64,
            length: *mut i64,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub cache_set_transport: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            transport: *const kvc_transport,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub transfer_receive: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            args: *const kvc_receive_args,
            transfer: *mut kvc_transfer,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub transfer_describe: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            transfer: kvc_transfer,
            buffer: *mut ::core::ffi::c_void,
            capacity: i64,
            bytes: *mut i64,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub transfer_send: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            sequence: kvc_seq,
            description: *const ::core::ffi::c_void,
            bytes: i64,
            transfer: *mut kvc_transfer,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub transfer_poll: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            transfer: kvc_transfer,
            info: *mut kvc_transfer_info,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub transfer_cancel: ::core::option::Option<
        unsafe extern "C" fn(cache: *mut kvc_cache, transfer: kvc_transfer, error: *mut kvc_error) -> kvc_status,
    >,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_api"][::core::mem::size_of::<kvc_api>() - 712usize];
    ["Alignment of kvc_api"][::core::mem::align_of::<kvc_api>() - 8usize];
    ["Offset of field: kvc_api::struct_size"][::core::mem::offset_of!(kvc_api, struct_size) - 0usize];
    ["Offset of field: kvc_api::abi"][::core::mem::offset_of!(kvc_api, abi) - 4usize];
    ["Offset of field: kvc_api::version"][::core::mem::offset_of!(kvc_api, version) - 8usize];
    ["Offset of field: kvc_api::abi_version"][::core::mem::offset_of!(kvc_api, abi_version) - 16usize];
    ["Offset of field: kvc_api::build_info"][::core::mem::offset_of!(kvc_api, build_info) - 24usize];
    ["Offset of field: kvc_api::status_name"][::core::mem::offset_of!(kvc_api, status_name) - 32usize];
    ["Offset of field: kvc_api::context_create"][::core::mem::offset_of!(kvc_api, context_create) - 40usize];
    ["Offset of field: kvc_api::context_destroy"][::core::mem::offset_of!(kvc_api, context_destroy) - 48usize];
    ["Offset of field: kvc_api::context_describe"][::core::mem::offset_of!(kvc_api, context_describe) - 56usize];
    ["Offset of field: kvc_api::cache_estimate"][::core::mem::offset_of!(kvc_api, cache_estimate) - 64usize];
    ["Offset of field: kvc_api::cache_create"][::core::mem::offset_of!(kvc_api, cache_create) - 72usize];
    ["Offset of field: kvc_api::cache_destroy"][::core::mem::offset_of!(kvc_api, cache_destroy) - 80usize];
    ["Offset of field: kvc_api::cache_clear"][::core::mem::offset_of!(kvc_api, cache_clear) - 88usize];
    ["Offset of field: kvc_api::seq_add"][::core::mem::offset_of!(kvc_api, seq_add) - 96usize];
    ["Offset of field: kvc_api::seq_remove"][::core::mem::offset_of!(kvc_api, seq_remove) - 104usize];
    ["Offset of field: kvc_api::seq_fork"][::core::mem::offset_of!(kvc_api, seq_fork) - 112usize];
    ["Offset of field: kvc_api::seq_truncate"][::core::mem::offset_of!(kvc_api, seq_truncate) - 120usize];
    ["Offset of field: kvc_api::seq_lengths"][::core::mem::offset_of!(kvc_api, seq_lengths) - 128usize];
    ["Offset of field: kvc_api::seq_pages"][::core::mem::offset_of!(kvc_api, seq_pages) - 136usize];
    ["Offset of field: kvc_api::seq_nearest_position"]
        [::core::mem::offset_of!(kvc_api, seq_nearest_position) - 144usize];
    ["Offset of field: kvc_api::seq_max_append"][::core::mem::offset_of!(kvc_api, seq_max_append) - 152usize];
    ["Offset of field: kvc_api::cache_can_fit"][::core::mem::offset_of!(kvc_api, cache_can_fit) - 160usize];
    ["Offset of field: kvc_api::forward_begin"][::core::mem::offset_of!(kvc_api, forward_begin) - 168usize];
    ["Offset of field: kvc_api::forward_append"][::core::mem::offset_of!(kvc_api, forward_append) - 176usize];
    ["Offset of field: kvc_api::forward_attend"][::core::mem::offset_of!(kvc_api, forward_attend) - 184usize];
    ["Offset of field: kvc_api::forward_end"][::core::mem::offset_of!(kvc_api, forward_end) - 192usize];
    ["Offset of field: kvc_api::forward_abort"][::core::mem::offset_of!(kvc_api, forward_abort) - 200usize];
    ["Offset of field: kvc_api::forward_cancel"][::core::mem::offset_of!(kvc_api, forward_cancel) - 208usize];
    ["Offset of field: kvc_api::forward_get_info"][::core::mem::offset_of!(kvc_api, forward_get_info) - 216usize];
    ["Offset of field: kvc_api::forward_describe"][::core::mem::offset_of!(kvc_api, forward_describe) - 224usize];
    ["Offset of field: kvc_api::cache_export_pool"][::core::mem::offset_of!(kvc_api, cache_export_pool) - 232usize];
    ["Offset of field: kvc_api::seq_export"][::core::mem::offset_of!(kvc_api, seq_export) - 240usize];
    ["Offset of field: kvc_api::seq_import"][::core::mem::offset_of!(kvc_api, seq_import) - 248usize];
    ["Offset of field: kvc_api::cache_stats"][::core::mem::offset_of!(kvc_api, cache_stats) - 256usize];
    ["Offset of field: kvc_api::cache_digest"][::core::mem::offset_of!(kvc_api, cache_digest) - 264usize];
    ["Offset of field: kvc_api::cache_check_invariants"]
        [::core::mem::offset_of!(kvc_api, cache_check_invariants) - 272usize];
    ["Offset of field: kvc_api::seq_commit"][::core::mem::offset_of!(kvc_api, seq_commit) - 280usize];
    ["Offset of field: kvc_api::seq_tree_nodes"][::core::mem::offset_of!(kvc_api, seq_tree_nodes) - 288usize];
    ["Offset of field: kvc_api::merge_states"][::core::mem::offset_of!(kvc_api, merge_states) - 296usize];
    ["Offset of field: kvc_api::seq_set_rope"][::core::mem::offset_of!(kvc_api, seq_set_rope) - 304usize];
    ["Offset of field: kvc_api::seq_checkpoint"][::core::mem::offset_of!(kvc_api, seq_checkpoint) - 312usize];
    ["Offset of field: kvc_api::seq_encoder_lengths"][::core::mem::offset_of!(kvc_api, seq_encoder_lengths) - 320usize];
    ["Offset of field: kvc_api::forward_load_state"][::core::mem::offset_of!(kvc_api, forward_load_state) - 328usize];
    ["Offset of field: kvc_api::forward_store_state"][::core::mem::offset_of!(kvc_api, forward_store_state) - 336usize];
    ["Offset of field: kvc_api::seq_set_streaming"][::core::mem::offset_of!(kvc_api, seq_set_streaming) - 344usize];
    ["Offset of field: kvc_api::seq_get_streaming"][::core::mem::offset_of!(kvc_api, seq_get_streaming) - 352usize];
    ["Offset of field: kvc_api::cache_take_copies"][::core::mem::offset_of!(kvc_api, cache_take_copies) - 360usize];
    ["Offset of field: kvc_api::flash_attn_with_kvcache"]
        [::core::mem::offset_of!(kvc_api, flash_attn_with_kvcache) - 368usize];
    ["Offset of field: kvc_api::append_slots"][::core::mem::offset_of!(kvc_api, append_slots) - 376usize];
    ["Offset of field: kvc_api::forward_tables"][::core::mem::offset_of!(kvc_api, forward_tables) - 384usize];
    ["Offset of field: kvc_api::plan_create"][::core::mem::offset_of!(kvc_api, plan_create) - 392usize];
    ["Offset of field: kvc_api::plan_destroy"][::core::mem::offset_of!(kvc_api, plan_destroy) - 400usize];
    ["Offset of field: kvc_api::plan_build"][::core::mem::offset_of!(kvc_api, plan_build) - 408usize];
    ["Offset of field: kvc_api::plan_tables"][::core::mem::offset_of!(kvc_api, plan_tables) - 416usize];
    ["Offset of field: kvc_api::plan_check"][::core::mem::offset_of!(kvc_api, plan_check) - 424usize];
    ["Offset of field: kvc_api::graph_create"][::core::mem::offset_of!(kvc_api, graph_create) - 432usize];
    ["Offset of field: kvc_api::graph_destroy"][::core::mem::offset_of!(kvc_api, graph_destroy) - 440usize];
    ["Offset of field: kvc_api::context_check"][::core::mem::offset_of!(kvc_api, context_check) - 448usize];
    ["Offset of field: kvc_api::prefix_match"][::core::mem::offset_of!(kvc_api, prefix_match) - 456usize];
    ["Offset of field: kvc_api::prefix_attach"][::core::mem::offset_of!(kvc_api, prefix_attach) - 464usize];
    ["Offset of field: kvc_api::prefix_publish"][::core::mem::offset_of!(kvc_api, prefix_publish) - 472usize];
    ["Offset of field: kvc_api::prefix_drop"][::core::mem::offset_of!(kvc_api, prefix_drop) - 480usize];
    ["Offset of field: kvc_api::prefix_drop_session"][::core::mem::offset_of!(kvc_api, prefix_drop_session) - 488usize];
    ["Offset of field: kvc_api::prefix_set_priority"][::core::mem::offset_of!(kvc_api, prefix_set_priority) - 496usize];
    ["Offset of field: kvc_api::prefix_set_session_priority"]
        [::core::mem::offset_of!(kvc_api, prefix_set_session_priority) - 504usize];
    ["Offset of field: kvc_api::prefix_pin"][::core::mem::offset_of!(kvc_api, prefix_pin) - 512usize];
    ["Offset of field: kvc_api::prefix_unpin"][::core::mem::offset_of!(kvc_api, prefix_unpin) - 520usize];
    ["Offset of field: kvc_api::cache_set_time"][::core::mem::offset_of!(kvc_api, cache_set_time) - 528usize];
    ["Offset of field: kvc_api::page_keys"][::core::mem::offset_of!(kvc_api, page_keys) - 536usize];
    ["Offset of field: kvc_api::events_read"][::core::mem::offset_of!(kvc_api, events_read) - 544usize];
    ["Offset of field: kvc_api::events_snapshot"][::core::mem::offset_of!(kvc_api, events_snapshot) - 552usize];
    ["Offset of field: kvc_api::seq_save"][::core::mem::offset_of!(kvc_api, seq_save) - 560usize];
    ["Offset of field: kvc_api::seq_load"][::core::mem::offset_of!(kvc_api, seq_load) - 568usize];
    ["Offset of field: kvc_api::cache_add_tier"][::core::mem::offset_of!(kvc_api, cache_add_tier) - 576usize];
    ["Offset of field: kvc_api::prefix_load"][::core::mem::offset_of!(kvc_api, prefix_load) - 584usize];
    ["Offset of field: kvc_api::job_poll"][::core::mem::offset_of!(kvc_api, job_poll) - 592usize];
    ["Offset of field: kvc_api::job_cancel"][::core::mem::offset_of!(kvc_api, job_cancel) - 600usize];
    ["Offset of field: kvc_api::cache_job_descriptor"]
        [::core::mem::offset_of!(kvc_api, cache_job_descriptor) - 608usize];
    ["Offset of field: kvc_api::cache_tier_traffic"][::core::mem::offset_of!(kvc_api, cache_tier_traffic) - 616usize];
    ["Offset of field: kvc_api::seq_exclusive_pages"][::core::mem::offset_of!(kvc_api, seq_exclusive_pages) - 624usize];
    ["Offset of field: kvc_api::seq_suspend"][::core::mem::offset_of!(kvc_api, seq_suspend) - 632usize];
    ["Offset of field: kvc_api::seq_resume"][::core::mem::offset_of!(kvc_api, seq_resume) - 640usize];
    ["Offset of field: kvc_api::forward_select"][::core::mem::offset_of!(kvc_api, forward_select) - 648usize];
    ["Offset of field: kvc_api::cache_describe"][::core::mem::offset_of!(kvc_api, cache_describe) - 656usize];
    ["Offset of field: kvc_api::cache_set_transport"][::core::mem::offset_of!(kvc_api, cache_set_transport) - 664usize];
    ["Offset of field: kvc_api::transfer_receive"][::core::mem::offset_of!(kvc_api, transfer_receive) - 672usize];
    ["Offset of field: kvc_api::transfer_describe"][::core::mem::offset_of!(kvc_api, transfer_describe) - 680usize];
    ["Offset of field: kvc_api::transfer_send"][::core::mem::offset_of!(kvc_api, transfer_send) - 688usize];
    ["Offset of field: kvc_api::transfer_poll"][::core::mem::offset_of!(kvc_api, transfer_poll) - 696usize];
    ["Offset of field: kvc_api::transfer_cancel"][::core::mem::offset_of!(kvc_api, transfer_cancel) - 704usize];
};
impl Default for kvc_error {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value.index = -1;
        value.group = -1;
        value
    }
}
impl Default for kvc_context_config {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_rope_scaling {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_state_config {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_layer_config {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_group_config {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_cache_config {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_estimate {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_batch {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_append_args {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_attend_args {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_select_args {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_merge_args {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_forward_info {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_graph_config {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_export_args {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_exported {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_import_args {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_stats {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_flash_attn_args {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_append_slots_args {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_tables {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_plan_config {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_plan_args {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_prefix_query {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_prefix_hit {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_prefix_options {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_prefix_published {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_page_keys_args {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_events_args {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_events_range {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_save_args {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_load_args {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_tier_config {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_prefix_load_options {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_job_info {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_tier_traffic {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_receive_args {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_transfer_info {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
