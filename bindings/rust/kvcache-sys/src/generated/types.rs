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
#[doc = " The result of a call; 0 is success. Later releases may add codes. The band of a code says what an unknown code means:\n   1..99     misuse: the program is wrong\n   100..199  capacity: the call may succeed later, or with less work\n   200..299  state: an object is in a state that does not allow the call\n   300..399  device\n   400..499  data and I/O\n   900..999  internal\n docs/reference/errors.md says what to do about each code."]
pub type kvc_status = i32;
pub const KVC_OK: kvc_status_code = 0;
#[doc = " a value is out of its range, or two values contradict each other"]
pub const KVC_ERROR_INVALID_ARGUMENT: kvc_status_code = 1;
#[doc = " a pointer that is not nullable is NULL"]
pub const KVC_ERROR_NULL_ARGUMENT: kvc_status_code = 2;
#[doc = " struct_size is smaller than in the first release, or differs between elements of an\narray"]
pub const KVC_ERROR_STRUCT_SIZE: kvc_status_code = 3;
#[doc = " the call is valid, but this library or backend cannot do it"]
pub const KVC_ERROR_UNSUPPORTED: kvc_status_code = 4;
#[doc = " a tensor has a wrong dtype"]
pub const KVC_ERROR_DTYPE: kvc_status_code = 5;
#[doc = " a tensor is on a wrong device, or the device does not have the stream"]
pub const KVC_ERROR_DEVICE: kvc_status_code = 6;
#[doc = " a tensor has a wrong number of dimensions"]
pub const KVC_ERROR_RANK: kvc_status_code = 7;
#[doc = " a tensor has a wrong shape"]
pub const KVC_ERROR_SHAPE: kvc_status_code = 8;
#[doc = " a tensor has wrong strides or a wrong alignment"]
pub const KVC_ERROR_STRIDE: kvc_status_code = 9;
#[doc = " a layer, group, position or length does not exist"]
pub const KVC_ERROR_OUT_OF_RANGE: kvc_status_code = 10;
#[doc = " a sequence or forward no longer exists, or belongs to another cache"]
pub const KVC_ERROR_STALE_ID: kvc_status_code = 11;
#[doc = " one call names the same sequence twice"]
pub const KVC_ERROR_DUPLICATE: kvc_status_code = 12;
#[doc = " KVC_CONTEXT_VALIDATE: the device found a bad index in a tensor of an earlier call. The\npresent call did nothing"]
pub const KVC_ERROR_EARLIER_CALL: kvc_status_code = 13;
#[doc = " error->required and error->available are numbers of pages in group\nerror->group"]
pub const KVC_ERROR_OUT_OF_PAGES: kvc_status_code = 100;
#[doc = " the host or the device refused memory"]
pub const KVC_ERROR_OUT_OF_MEMORY: kvc_status_code = 101;
#[doc = " error->required and error->available are numbers of sequences"]
pub const KVC_ERROR_TOO_MANY_SEQUENCES: kvc_status_code = 102;
#[doc = " error->required and error->available are numbers of open forwards"]
pub const KVC_ERROR_TOO_MANY_FORWARDS: kvc_status_code = 103;
#[doc = " error->required and error->available are numbers of tokens, or of rows, of a\nbatch"]
pub const KVC_ERROR_BATCH_TOO_LARGE: kvc_status_code = 104;
#[doc = " error->required and error->available are numbers of elements of an output\narray"]
pub const KVC_ERROR_BUFFER_TOO_SMALL: kvc_status_code = 105;
#[doc = " error->required and error->available are numbers of uncommitted tree nodes of a\nsequence"]
pub const KVC_ERROR_TREE_TOO_LARGE: kvc_status_code = 106;
#[doc = " the sequence is in an open forward or a kvc_job, or another thread uses the forward"]
pub const KVC_ERROR_BUSY: kvc_status_code = 200;
#[doc = " the calls came in a wrong order, or a call that is allowed only once came twice"]
pub const KVC_ERROR_ORDER: kvc_status_code = 201;
#[doc = " the forward was cancelled, so only kvc_forward_abort is possible. Or a suspend or resume was\ncancelled (kvc_job)"]
pub const KVC_ERROR_CANCELLED: kvc_status_code = 202;
#[doc = " the needed keys were freed when they left a window, or the needed recurrent state is not\nkept"]
pub const KVC_ERROR_EVICTED: kvc_status_code = 203;
#[doc = " the sequence has an uncommitted tree. Call kvc_seq_commit first"]
pub const KVC_ERROR_UNCOMMITTED: kvc_status_code = 204;
#[doc = " the caller gave the generation (number) of one kvc_plan_build, but another build made the\ntables of the kvc_plan. Or the plan has no tables, because no build was made or the last\none failed. Or no forward is open in the graph"]
pub const KVC_ERROR_STALE: kvc_status_code = 205;
#[doc = " the sequence is suspended. Call kvc_seq_resume first"]
pub const KVC_ERROR_SUSPENDED: kvc_status_code = 206;
#[doc = " a prefix is still being loaded (kvc_prefix_attach_pending). In a forward, error->index is\nthe layer, and error->required and error->available are numbers of pages: how many the\nlayer needs, and how many of these it has"]
pub const KVC_ERROR_PENDING: kvc_status_code = 207;
#[doc = " no backend, driver or device of that type was found"]
pub const KVC_ERROR_DEVICE_UNAVAILABLE: kvc_status_code = 300;
#[doc = " the driver reported an error. The message names the error and the call"]
pub const KVC_ERROR_DEVICE_FAILED: kvc_status_code = 301;
#[doc = " an operation on a file, tier or transport failed, or a write or read callback of the caller\nreported a failure. The message says why"]
pub const KVC_ERROR_IO: kvc_status_code = 400;
#[doc = " stored bytes are damaged or cut off, or were not written by this library"]
pub const KVC_ERROR_CORRUPT: kvc_status_code = 401;
#[doc = " stored bytes are undamaged, but belong to another model, dtype or layout. The message has\nboth layouts"]
pub const KVC_ERROR_LAYOUT: kvc_status_code = 402;
#[doc = " a bug of the library. kvc_cache_check_invariants reports this code too"]
pub const KVC_ERROR_INTERNAL: kvc_status_code = 900;
pub type kvc_status_code = ::core::ffi::c_uint;
#[doc = " Says which error occurred, in numbers and in words. The caller owns the struct. The library writes to the struct only on\n failure. The layout of the struct never changes."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_error {
    #[doc = " sizeof(kvc_error); KVC_ERROR_INIT sets it"]
    pub struct_size: u32,
    #[doc = " the returned status"]
    pub code: kvc_status,
    #[doc = " the row, layer or array element that has the error; -1 = none"]
    pub index: i64,
    #[doc = " capacity errors, and errors whose comment names this field: what the call needs; else 0"]
    pub required: i64,
    #[doc = " the same errors: what is available; else 0"]
    pub available: i64,
    #[doc = " the layer group that has the error; -1 = none"]
    pub group: i64,
    #[doc = " \"function: error with the values\"; NUL-terminated ASCII"]
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
#[doc = " The type of a function that computes one item of a parallel_for. The library provides this function.\n\n Rules for callbacks of the host program (parallel_for and log): several threads may call them at the same time. The\n library holds no lock while it calls them. The callbacks must not throw an exception or call longjmp, and must not destroy\n the context or a cache. After kvc_context_destroy, and kvc_cache_destroy for every cache in the context, the library no\n longer calls the callbacks. The deleters of exported tensors never call them."]
pub type kvc_parallel_item_fn = ::core::option::Option<unsafe extern "C" fn(arg: *mut ::core::ffi::c_void, index: i64)>;
#[doc = " A callback of the host program that computes n items. The callback calls item(arg, i) once for each i in [0, n), and\n returns when all calls have returned. The calls may come in any order and on any threads, even all on one thread. Items\n never wait for each other."]
pub type kvc_parallel_for_fn = ::core::option::Option<
    unsafe extern "C" fn(
        user: *mut ::core::ffi::c_void,
        n: i64,
        item: kvc_parallel_item_fn,
        arg: *mut ::core::ffi::c_void,
    ),
>;
#[doc = " Validation mode. Use it in tests, or to find a call that wrote outside of its pages. The host does not read the\n values of some index tensors (sections 10 and 11): only a GPU reads them. In this mode, the GPU checks all values of\n these tensors, page ids included. It skips a row or token that has a bad value. If a kvc_plan_build has a bad value, the\n GPU skips the whole build.\n\n The device keeps the first bad value since the last report. This value is reported once, as EARLIER_CALL. The report\n comes from kvc_context_check, or from the next call on this context that is given index tensors. The report does not\n wait for the device. The message names the call, the tensor, the row and the value, and error->index is the row. The\n reporting call does nothing else and may be repeated. But a kvc_plan_build that reports also invalidates its plan, as\n every failed build does. Replays of captured calls are checked when they run.\n\n Validation costs one pass over the page ids in use. The flag has no effect on values that the host reads (on the CPU,\n all values), because the call itself always checks these values."]
pub const KVC_CONTEXT_VALIDATE: kvc_context_flags = 1;
pub type kvc_context_flags = ::core::ffi::c_uint;
pub const KVC_LOG_WARNING: kvc_log_level = 1;
pub const KVC_LOG_INFO: kvc_log_level = 2;
pub const KVC_LOG_DEBUG: kvc_log_level = 3;
pub type kvc_log_level = ::core::ffi::c_uint;
#[doc = " A callback that writes a log message. The library calls it on the thread that called the library. The callback borrows\n `message`."]
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
    #[doc = " CPU: the number of threads that compute, the thread of the caller included; 0 = the number of CPUs\nin the affinity mask, but at most the cgroup quota. With parallel_for: the largest number of\nthreads that parallel_for uses at the same time. At most 1024"]
    pub num_threads: i32,
    #[doc = " nullable: the best SIMD target of this CPU. Else the name of a SIMD target from\nkvc_context_describe, or \"reference\" (float64, for tests). avx512_amx requests AMX tiles for the\nwhole process"]
    pub simd: *const ::core::ffi::c_char,
    #[doc = " nullable: the context starts its own threads on first use. Else the context uses the\nthread pool of the host program through this callback"]
    pub parallel_for: kvc_parallel_for_fn,
    #[doc = " the first argument of parallel_for"]
    pub parallel_for_user: *mut ::core::ffi::c_void,
    #[doc = " nullable: no log"]
    pub log: kvc_log_fn,
    #[doc = " the first argument of log"]
    pub log_user: *mut ::core::ffi::c_void,
    #[doc = " nullable: the default backend of the device type. The CPU's backend is built in. The CUDA backend\nis the file that the environment variable KVCACHE_CUDA_BACKEND names. If this variable is not set,\nthe CUDA backend is libkvcache_cuda.so in the directory of this library. If `backend` is not NULL,\nit is the path of a backend's file (kvcache_backend.h). The file stays loaded"]
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
#[doc = " the library rotates q and k at their positions, and stores rotated k. Rotated q is rounded to\nq's dtype, as if the caller had rotated it"]
pub const KVC_ROPE_ON_APPEND: kvc_rope_mode = 1;
#[doc = " k is stored, exported and imported without rotation. attend rotates q as in KVC_ROPE_ON_APPEND,\nand rotates each key in float32 when it reads the key"]
pub const KVC_ROPE_ON_READ: kvc_rope_mode = 2;
#[doc = " The RoPE mode of a layer says whether and when the library rotates q and k (rotary position embedding, RoPE). Only\n rope_dim dims of a vector are rotated, in pairs. Pair i is rotated by the angle position * f(i), where f(i) =\n rope_theta^(-2i/rope_dim) unless a scaling changes f(i). docs/reference/rope.md has every formula."]
pub type kvc_rope_mode = ::core::ffi::c_uint;
pub const KVC_ROPE_SCALING_NONE: kvc_rope_scaling_kind = 0;
#[doc = " f(i) / factor (position interpolation)"]
pub const KVC_ROPE_SCALING_LINEAR: kvc_rope_scaling_kind = 1;
#[doc = " pairs that make at most low_freq_factor full rotations over original_max_position tokens\nhave f(i) / factor. Pairs that make at least high_freq_factor rotations have f(i). Pairs\nbetween these bounds have a blend of both"]
pub const KVC_ROPE_SCALING_LLAMA3: kvc_rope_scaling_kind = 2;
#[doc = " pairs that make at most beta_slow full rotations over original_max_position tokens have\nf(i) / factor. Pairs that make at least beta_fast rotations have f(i). Pairs between these\nbounds have a blend of both. cos and sin are multiplied by attention_factor"]
pub const KVC_ROPE_SCALING_YARN: kvc_rope_scaling_kind = 3;
#[doc = " f(i) / short_factors[i] or f(i) / long_factors[i] (see kvc_seq_set_rope). cos and sin are\nmultiplied by attention_factor"]
pub const KVC_ROPE_SCALING_LONGROPE: kvc_rope_scaling_kind = 4;
#[doc = " How a scaling for long contexts changes f(i) of kvc_rope_mode."]
pub type kvc_rope_scaling_kind = ::core::ffi::c_uint;
#[doc = " yarn: the bounds of the blend are not rounded to whole pairs (\"truncate\": false)"]
pub const KVC_ROPE_SCALING_NO_TRUNCATE: kvc_rope_scaling_flags = 1;
pub type kvc_rope_scaling_flags = ::core::ffi::c_uint;
#[doc = " The fields of \"rope_scaling\" in the config.json of a model. They say how the model was extended beyond the length that it\n was first trained for. Fields that `kind` does not use must be 0."]
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
    #[doc = " linear, llama3, yarn: 1..1e6. longrope: 1..1e6, used only in the default of\nattention_factor; 0 = 1"]
    pub factor: f64,
    #[doc = " llama3: > 0"]
    pub low_freq_factor: f64,
    #[doc = " llama3: > low_freq_factor"]
    pub high_freq_factor: f64,
    #[doc = " yarn: > 0, usually above beta_slow; 0 = the default 32"]
    pub beta_fast: f64,
    #[doc = " yarn: > 0; 0 = the default 1"]
    pub beta_slow: f64,
    #[doc = " yarn, longrope: > 0. cos and sin are multiplied by this factor, for q and for k. 0 = the\ndefault of the kind"]
    pub attention_factor: f64,
    #[doc = " yarn: mscale and mscale_all_dim together set the default of attention_factor, as in\nDeepSeek. If one of them is 0, the other has no effect"]
    pub mscale: f64,
    #[doc = " yarn: see mscale. This field does not change softmax_scale. The caller sets softmax_scale\n(docs/reference/rope.md)"]
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
#[doc = " pair i of rotated dims is (2i, 2i+1), as in GPT-J. Without this flag, pair i is\n(i, i + rope_dim/2), as in GPT-NeoX"]
pub const KVC_LAYER_ROPE_INTERLEAVED: kvc_layer_flags = 1;
#[doc = " The layer stores K and no V. Its keys are index keys: by them, kvc_forward_select chooses the tokens to which queries\n attend in other layers. No query attends to index keys. The layer may be in any group that is neither recurrent nor\n cross. The index keys have the same page ids as the K and V of the other layers of the group. v_head_dim and latent_dim\n must be 0. v_scales, kv_storage and v_storage must be NULL, and k_storage may be given. rope_mode must not be\n KVC_ROPE_ON_READ. num_q_heads is the number of index heads"]
pub const KVC_LAYER_KEYS_ONLY: kvc_layer_flags = 2;
pub type kvc_layer_flags = ::core::ffi::c_uint;
#[doc = " One state tensor of a recurrent layer. The layer keeps one such tensor for each sequence. Examples are the last inputs of\n a convolution, and the state of linear attention or of a state-space model."]
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
    #[doc = " shape[0..rank - 1] are at least 1, and the rest is 0"]
    pub shape: [i64; 4usize],
    #[doc = " the value of all elements in the state of an empty sequence. A float dtype permits +infinity,\n-infinity, and every number that is still finite after rounding to the dtype, but no NaN. An integer\ndtype permits every whole number from -2^53 to 2^53 that the dtype can represent"]
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
    #[doc = " the type of stored K and V: float32, float16, bfloat16; {0,0,0} = float32. Quantised:\nfloat8_e4m3fn, float8_e5m2, int8, uint4, float4_e2m1fn (docs/reference/formats.md).\nA quantised type stores an element x as x / scale, rounded to the nearest value of the type (ties\nto even). If |x / scale| is above the largest finite value of the type, that value is stored,\nwith the sign of x. NaN is stored as NaN if the type has NaN. An element is read as\nstored * scale. (uint4 has other rules: docs/reference/formats.md.)\nint8: each row of one token and one head has its own scale, which is stored in the page. The\nscale is amax / 127, where amax is the largest magnitude in the row. No stored element is -128.\nIf amax / 127 rounds to 0 in float32, the row has scale 1 and is read as zeros. A row that holds\nan infinity or a NaN is read as NaN"]
    pub dtype: DLDataType,
    #[doc = " KVC_ROPE_*"]
    pub rope_mode: i32,
    #[doc = " number of rotated dims, even; rope_offset + rope_dim <= head_dim; 0 = head_dim - rope_offset"]
    pub rope_dim: i32,
    #[doc = " first rotated dim; MLA: at least latent_dim, and 0 = latent_dim"]
    pub rope_offset: i32,
    #[doc = " KVC_LAYER_*"]
    pub flags: u32,
    #[doc = " 0 = the layer stores its own K and V. 1 + i = the layer stores nothing, and reads the K and V of\nlayer i, which must be an earlier layer of the same group. Call attend without k and v, after the\nappend of layer i. group, num_kv_heads, dims, dtype and rope_* must be equal in both layers. Give\nstorage and scales in layer i only"]
    pub kv_layer: i32,
    #[doc = " base of the angles, 1e-30..1e30 (yarn: > 1); 0 = 10000"]
    pub rope_theta: f64,
    #[doc = " borrowed; nullable: none"]
    pub rope_scaling: *const kvc_rope_scaling,
    #[doc = " 1e-30..1e30; 0 = head_dim^-0.5. MLA: must be set, because the scale does not follow from head_dim\n(DeepSeek-V3: 0.13523, docs/reference/mla.md)"]
    pub softmax_scale: f64,
    #[doc = " nullable: the cache allocates the pool, unless k_storage is given. Adopted by\nkvc_cache_create: the layer's page pool in memory of the caller,\n[>= pages, 2, Hkv, page_size, D]. Index 0 of dim 1 is K, and index 1 is V. The\ninnermost stride is 1. All other strides are free, so both HND and NHD layouts are\npossible. D must equal Dv. The memory must be writable. No tensor may be given\ntwice. Pools of several layers may interleave in memory, but must not overlap.\nThe library calls the tensor's deleter once, when the cache and all exported views\nof the pool are gone. If the tensor has no deleter, the caller must keep the\nmemory until then. docs/reference/storage.md has layouts"]
    pub kv_storage: *mut DLManagedTensorVersioned,
    #[doc = " nullable; adopted; like kv_storage, for K alone: [>= pages, Hkv, page_size, D]"]
    pub k_storage: *mut DLManagedTensorVersioned,
    #[doc = " nullable; adopted; like kv_storage, for V alone: [>= pages, Hkv, page_size, Dv].\nGive it together with k_storage. MLA and KVC_LAYER_KEYS_ONLY have only k_storage.\nA storage has the dtype of the layer; for float8 the dtype may also be uint8.\nint8, uint4 and float4 layers cannot have a storage of the caller, because only\nthe library can lay out the scales in their pages. Some row formats\n(kvc_row_format) have scales after the rows of a page. With such a format, an MLA\nlayer or a layer with KVC_LAYER_KEYS_ONLY can have a k_storage of [>= pages, bytes\nof a page] uint8. Other layers with such a format cannot have a storage of the\ncaller"]
    pub v_storage: *mut DLManagedTensorVersioned,
    #[doc = " float8, float4: borrowed; [num_scales], each 1e-20..1e20; nullable if num_scales is 0"]
    pub k_scales: *const f32,
    #[doc = " the same for V. MLA: NULL, because V is part of K"]
    pub v_scales: *const f32,
    #[doc = " float8, float4: 0 = every scale is 1; 1 = one scale for all kv heads; num_kv_heads = one scale\nfor each kv head. Other dtypes: 0"]
    pub num_scales: i32,
    #[doc = " recurrent: number of state tensors of the layer, 1..16. Else 0"]
    pub num_states: i32,
    #[doc = " recurrent: borrowed; [num_states], the elements are states[0].struct_size bytes apart.\nElse NULL. In the config of a recurrent layer, all fields after struct_size must be 0,\nexcept group, num_states and states"]
    pub states: *const kvc_state_config,
    #[doc = " MLA: the first latent_dim dims of a row are also V; 1..head_dim. Else 0"]
    pub latent_dim: i32,
    #[doc = " number of kv heads of the layer in all ranks of tensor parallelism together\n(kvc_cache_config.tp_size), at most 65536; 0 = num_kv_heads * tp_size (MLA: 1). Let N be this\nnumber, or the default. If N >= tp_size, num_kv_heads must be N / tp_size, and rank r has the\nheads [r * num_kv_heads, (r + 1) * num_kv_heads). If N < tp_size, num_kv_heads must be 1, and\neach head is stored by tp_size / N consecutive ranks. recurrent: 0"]
    pub total_kv_heads: i32,
    #[doc = " KVC_ROW_FORMAT_*; 0 = all dims have dtype. recurrent: 0"]
    pub row_format: i32,
    #[doc = " 0"]
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_layer_config"][::core::mem::size_of::<kvc_layer_config>() - 144usize];
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
    ["Offset of field: kvc_layer_config::total_kv_heads"]
        [::core::mem::offset_of!(kvc_layer_config, total_kv_heads) - 132usize];
    ["Offset of field: kvc_layer_config::row_format"][::core::mem::offset_of!(kvc_layer_config, row_format) - 136usize];
    ["Offset of field: kvc_layer_config::reserved"][::core::mem::offset_of!(kvc_layer_config, reserved) - 140usize];
};
#[doc = " all dims have the type kvc_layer_config.dtype"]
pub const KVC_ROW_FORMAT_DTYPE: kvc_row_format = 0;
#[doc = " the row of DeepSeek-V3.2, as vLLM (\"fp8_ds_mla\") and FlashMLA store it. It has 656 bytes:\n512 latent dims as float8_e4m3fn, then 4 float32 scales of 128 latent dims each, then 64\nrotary dims as bfloat16. For MLA groups with head_dim 576 and latent_dim 512"]
pub const KVC_ROW_FORMAT_FP8_DS_MLA: kvc_row_format = 1;
#[doc = " the row of DeepSeek-V4, as vLLM and FlashMLA store it. It has 576 bytes: 448 dims as\nfloat8_e4m3fn, then 64 rotary dims as bfloat16. The rows of a page are followed by 8\nbytes for each row: 7 powers of two, each the scale of 64 dims, and a zero. For MLA\ngroups with head_dim 512 and latent_dim 512: V is the whole row"]
pub const KVC_ROW_FORMAT_FP8_DS_V4: kvc_row_format = 2;
#[doc = " float4_e2m1fn. The rows of a page are followed by the scales of each row: a power of two\n(float8_e8m0fnu) for each 32 dims. Index keys of DeepSeek-V4: 68 bytes for 128 dims"]
pub const KVC_ROW_FORMAT_MXFP4: kvc_row_format = 3;
#[doc = " the same with float8_e4m3fn. Rows of DeepSeek-V4.1: 528 bytes for 512 dims"]
pub const KVC_ROW_FORMAT_MXFP8: kvc_row_format = 4;
#[doc = " float8_e4m3fn. The rows of a page are followed by the scales of each row: a float32 for\neach 128 dims, which append chooses as a power of two. Index keys of DeepSeek-V3.2: 132\nbytes for 128 dims"]
pub const KVC_ROW_FORMAT_FP8_BLOCKS: kvc_row_format = 5;
#[doc = " float4_e2m1fn. The rows of a page are followed by the scales of each row: a float8_e4m3fn\nfor each 16 dims. Compressed rows of DeepSeek-V4.1: 288 bytes for 512 dims"]
pub const KVC_ROW_FORMAT_NVFP4: kvc_row_format = 6;
#[doc = " the row of DeepSeek-V3.2 with 352 bytes: 512 latent dims as float4_e2m1fn, then 64\nrotary dims as float8_e4m3fn without a scale, then 32 float8_e4m3fn, the scales of 16\nlatent dims each. The scale of block s is byte 320 + 8 * (s % 4) + s / 4 of the row. For\nMLA groups with head_dim 576 and latent_dim 512"]
pub const KVC_ROW_FORMAT_NVFP4_DS_MLA: kvc_row_format = 7;
#[doc = " How a layer stores its rows (kvc_layer_config.row_format). docs/reference/formats.md has the bytes of each format, and\n says how views, exports and storage of the caller look. A layer with a row_format other than 0 must leave\n dtype at {0,0,0}, or set it to float32. The row format replaces this dtype. In these formats, blocks of neighbouring dims\n have a scale, which append computes. If one dim of a block is infinite or NaN, the whole block is read as NaN."]
pub type kvc_row_format = ::core::ffi::c_uint;
#[doc = " K and V"]
pub const KVC_ROW_KV: kvc_row = 0;
#[doc = " multi-head latent attention (MLA): one row [latent | rotary] for each token, which all heads share.\nK is the whole row (num_kv_heads is 1, head_dim is the width of the row). V is the first latent_dim\ndims of the row"]
pub const KVC_ROW_LATENT: kvc_row = 1;
#[doc = " recurrent: the group stores no keys. Each layer of the group keeps state tensors of fixed size for a\nsequence. A forward loads and stores these tensors (kvc_forward_load_state). A page holds the states\nof all layers of the group. Needs KVC_VISIBLE_ALL"]
pub const KVC_ROW_STATE: kvc_row = 2;
#[doc = " The kind of row of a group says what the group stores for a token. A group also has a visibility (kvc_visibility). Every\n kind of row can be combined with every visibility, except that KVC_ROW_STATE needs KVC_VISIBLE_ALL."]
pub type kvc_row = ::core::ffi::c_uint;
#[doc = " a full group: a query at position p sees keys 0..p. Memory grows with the sequence"]
pub const KVC_VISIBLE_ALL: kvc_visibility = 0;
#[doc = " a sliding group: a query at position p sees keys p-w+1..p, where w = window_tokens. A page is\nfreed at the end of a forward when all tokens of the page lie before the window and the rollback\nmargin"]
pub const KVC_VISIBLE_WINDOW: kvc_visibility = 1;
#[doc = " a chunked group: a query at position p sees the keys j <= p of the query's own chunk. These are\nthe keys with j / c == p / c (integer division), where c = chunk_tokens. A page is freed at the\nend of a forward when all tokens of the page lie before the chunk and the rollback margin"]
pub const KVC_VISIBLE_CHUNK: kvc_visibility = 2;
#[doc = " a cross group: each sequence has an encoder sequence (image, audio, source text). A query sees\nall keys of the encoder sequence that belongs to the query's sequence. The encoder sequence has\nits own length. Its tokens are appended in separate forwards (kvc_batch.encoder_group). A fork\nshares the encoder sequence with its parent, and truncate does not change the encoder sequence.\nLayers of the group must have KVC_ROPE_NONE"]
pub const KVC_VISIBLE_ENCODER: kvc_visibility = 3;
#[doc = " The visibility of a group says which keys its queries see."]
pub type kvc_visibility = ::core::ffi::c_uint;
#[doc = " A group of layers. Every group must have at least one layer (else INVALID_ARGUMENT). A pipeline stage with a cache of its\n own configures only the layers that it computes, and the groups of these layers."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_group_config {
    pub struct_size: u32,
    #[doc = " KVC_ROW_*"]
    pub row: i32,
    #[doc = " KVC_VISIBLE_*"]
    pub visibility: i32,
    #[doc = " r > 1: the group stores one row for r tokens, see kvc_rows_closed; 0 = 1"]
    pub tokens_per_row: i32,
    #[doc = " KVC_VISIBLE_WINDOW: w, 1..2^30. Else 0"]
    pub window_tokens: i64,
    #[doc = " KVC_VISIBLE_CHUNK: c, 1..2^30, not necessarily a multiple of the page size. Else 0"]
    pub chunk_tokens: i64,
    #[doc = " number of pages in the pools of this group, below 2^31. 0 = the number follows from the cache's\ncapacity; in a recurrent group, it follows from other limits instead: it is\nmax_sequences * (2 + max_checkpoints + n), plus prefix_checkpoints if the cache has a prefix\nindex. If max_draft_states is 0, n is 0. Otherwise n is the smaller of max_draft_states + 1 and\nmax_tree_nodes - 1. In a recurrent group, a sequence takes one page, one more page in an open\nforward, and one page for each checkpoint. An uncommitted tree takes one page for the state\nbefore the tree, unless this state is a checkpoint. It also takes one page for each node whose\nstate is kept, except for the last node: the sequence's own page has the state of that node"]
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
#[doc = " no rollback margin: rollback_tokens = 0 then means 0, not the default"]
pub const KVC_CACHE_NO_ROLLBACK: kvc_cache_flags = 1;
#[doc = " sequences may have streaming windows (kvc_seq_set_streaming). The cache then reserves\nbookkeeping for page lists that can grow to 2^30 tokens. It also reserves scratch for two\npartial results of each query: one over the sinks, and one over the window. The flag needs a\nfull group"]
pub const KVC_CACHE_STREAMING: kvc_cache_flags = 2;
#[doc = " rows never attend together: each row reads all of its keys"]
pub const KVC_CACHE_NO_PREFIX_SHARING: kvc_cache_flags = 4;
#[doc = " rows attend together to all pages that they have in common"]
pub const KVC_CACHE_SHARE_ALL_PREFIXES: kvc_cache_flags = 8;
#[doc = " On one SIMD target, the bits of an output do not depend on the batch, the threads, the page ids or forks. They also do\n not depend on how tokens are divided into steps. One kernel computes a partial result for every 1,024 keys, and these\n results are merged from left to right. Rows do not attend to common pages together. Decoding takes about twice as long.\n benchmarks/results/README.md lists figures."]
pub const KVC_CACHE_DETERMINISTIC: kvc_cache_flags = 16;
#[doc = " The cache has a prefix index. Published tokens can then be found even after their sequence is removed (section 12)."]
pub const KVC_CACHE_PREFIX_INDEX: kvc_cache_flags = 32;
#[doc = " When a sequence takes a new page, the K and V of the page are set to zero before any other work reads the page. (In\n spite of the flag's name, this does not happen when a page is freed.) So no kernel, not even a kernel of the engine,\n reads bytes of another sequence in a new page. The cost is one write of each new page. The flag needs pools\n (KVC_STORAGE_OWN)"]
pub const KVC_CACHE_ZERO_ON_FREE: kvc_cache_flags = 64;
pub type kvc_cache_flags = ::core::ffi::c_uint;
#[doc = " the prefix with the smallest t + n * a / 2. t is the time of the prefix's last use. n is\nthe number of its uses after the first, at most 3. a is the mean time from the last use of\na prefix to its eviction, over recently evicted prefixes. So a prefix that was used only\nonce is evicted earlier than a prefix that is used again and again"]
pub const KVC_PREFIX_POLICY_REUSE: kvc_prefix_policy = 0;
#[doc = " the least recently used prefix"]
pub const KVC_PREFIX_POLICY_LRU: kvc_prefix_policy = 1;
#[doc = " A prefix is idle if only the prefix index refers to its pages. The policy says which idle prefix the index evicts first,\n among idle prefixes of equal priority. If a longer prefix continues a shorter prefix, the longer prefix is evicted first.\n benchmarks/results/README.md has hit rates of both policies."]
pub type kvc_prefix_policy = ::core::ffi::c_uint;
#[doc = " the cache has a page pool for every layer. The pool is in memory of the cache or of the caller\n(kvc_layer_config.kv_storage)"]
pub const KVC_STORAGE_OWN: kvc_storage = 0;
#[doc = " the cache has tables only, for engines with pools and kernels of their own. Sequences, pages and\nsteps work as usual, but the cache stores no K and V. The engine must copy some tokens from page to\npage: kvc_cache_take_copies returns these copies. append, attend, exports and imports are\nUNSUPPORTED. The layer configs say how many bytes a page has, and one layer for each group is\nenough. The cache does store recurrent states, so kvc_forward_load_state works"]
pub const KVC_STORAGE_NONE: kvc_storage = 1;
pub type kvc_storage = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_cache_config {
    pub struct_size: u32,
    #[doc = " KVC_CACHE_*"]
    pub flags: u32,
    #[doc = " borrowed; [num_layers], the elements are layers[0].struct_size bytes apart"]
    pub layers: *const kvc_layer_config,
    #[doc = " borrowed; [num_groups], the elements are groups[0].struct_size bytes apart; nullable:\none full group"]
    pub groups: *const kvc_group_config,
    #[doc = " 1..4096"]
    pub num_layers: i32,
    #[doc = " 1..64; 0 if groups is NULL"]
    pub num_groups: i32,
    #[doc = " tokens of a page, 1..65536; 0 = 16"]
    pub page_size: i32,
    #[doc = " 1..1048575; 0 = 64"]
    pub max_sequences: i32,
    #[doc = " tokens of one forward, 1..1048576; 0 = 2048"]
    pub max_batch_tokens: i32,
    #[doc = " 1..64; 0 = 2"]
    pub max_open_forwards: i32,
    #[doc = " the rollback margin: how many tokens are kept before every window (streaming windows\nincluded) and before every chunk. truncate and fork can then drop up to this many\ntokens, such as rejected drafts. At most 2^30; 0 = max_tree_nodes"]
    pub rollback_tokens: i64,
    #[doc = " number of tokens that a full group can store, rounded up to pages"]
    pub capacity_tokens: i64,
    #[doc = " number of pages of a full group"]
    pub capacity_pages: i64,
    #[doc = " largest size in bytes of all pools of all layers together"]
    pub capacity_bytes: i64,
    #[doc = " largest number of uncommitted tree nodes of a sequence, 1..1024; 0 = 64"]
    pub max_tree_nodes: i32,
    #[doc = " cache with a recurrent group: the largest number of checkpoints of one sequence,\n1..1024; 0 = 1. Else 0"]
    pub max_checkpoints: i32,
    #[doc = " KVC_STORAGE_*"]
    pub storage: i32,
    #[doc = " KVC_CACHE_PREFIX_INDEX: KVC_PREFIX_POLICY_*. Else 0"]
    pub prefix_policy: i32,
    #[doc = " KVC_CACHE_PREFIX_INDEX: the largest number of pages that the index can hold in each\ngroup, below 2^31, without those of recurrent groups. 0 = the number of pages of the\nlargest group; if all groups are recurrent, 1,024 * prefix_checkpoints. Else 0"]
    pub prefix_pages: i64,
    #[doc = " KVC_CACHE_PREFIX_INDEX with a recurrent group: the largest number of positions whose\nstates the index can hold, below 2^31; 0 = max_sequences. A recurrent group whose\nnum_pages is 0 gets this many pages in addition. Else 0"]
    pub prefix_checkpoints: i64,
    #[doc = " borrowed; nullable: pages of this cache have no page keys (section 13), so there are\nno events and no tiers. [32]: identifies the model (weights, quantisation, tokenizer),\nas in kvc_page_keys_args"]
    pub fingerprint: *const u8,
    #[doc = " KVC_CACHE_PREFIX_INDEX and a fingerprint: number of events that the cache keeps until\nthey are read (section 14), below 2^31; 0 = none. Else 0"]
    pub events_capacity: i64,
    #[doc = " cache with a recurrent group: the first max_draft_states nodes of an uncommitted tree\nkeep their recurrent states, so that any of these nodes can be committed; 0..63, at most\nmax_tree_nodes. Else 0"]
    pub max_draft_states: i32,
    #[doc = " number of ranks of tensor parallelism, 1..4096; 0 = 1. Each rank has a cache of its own,\nwith a share of the kv heads of each layer. A rank does not find the pages of another\nrank in tiers, even if both have the same fingerprint. A transfer (section 17) may go to\ncaches with another tp_size"]
    pub tp_size: i32,
    #[doc = " rank of this cache, 0..tp_size - 1"]
    pub tp_rank: i32,
    #[doc = " 0"]
    pub reserved: u32,
    #[doc = " events_capacity above 0: number of pages in tiers of which events tell (section 14),\nbelow 2^31; 0 = events tell only of the pools. Else 0"]
    pub events_tier_pages: i64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_cache_config"][::core::mem::size_of::<kvc_cache_config>() - 152usize];
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
    ["Offset of field: kvc_cache_config::tp_size"][::core::mem::offset_of!(kvc_cache_config, tp_size) - 132usize];
    ["Offset of field: kvc_cache_config::tp_rank"][::core::mem::offset_of!(kvc_cache_config, tp_rank) - 136usize];
    ["Offset of field: kvc_cache_config::reserved"][::core::mem::offset_of!(kvc_cache_config, reserved) - 140usize];
    ["Offset of field: kvc_cache_config::events_tier_pages"]
        [::core::mem::offset_of!(kvc_cache_config, events_tier_pages) - 144usize];
};
#[doc = " The memory that a cache with a given config would need, or that one group of this cache would need."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_estimate {
    pub struct_size: u32,
    pub reserved: u32,
    #[doc = " pages of the group, or of all groups together"]
    pub num_pages: i64,
    #[doc = " bytes of one page in all layers of the group; 0 in an estimate of the whole cache"]
    pub page_bytes: i64,
    #[doc = " bytes that one stored token takes in all layers, or in all layers of the group"]
    pub token_bytes: i64,
    #[doc = " bytes of pools; with KVC_STORAGE_NONE, only the bytes of the pools of recurrent groups"]
    pub storage_bytes: i64,
    #[doc = " bytes of host memory for page tables and sequences"]
    pub bookkeeping_bytes: i64,
    #[doc = " bytes of host and device memory for the largest batches; 0 in an estimate of one group"]
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
#[doc = " Id of a sequence: opaque, never 0, below 2^63. A call with a stale id returns STALE_ID and has no other effect."]
pub type kvc_seq = u64;
#[doc = " the present tokens of each sequence become sinks: s = max(sink_tokens, present length).\nNot allowed for a sequence whose window is 0"]
pub const KVC_STREAMING_PREFIX_IS_SINK: kvc_streaming_flags = 1;
pub type kvc_streaming_flags = ::core::ffi::c_uint;
pub const KVC_ROPE_SET_SHORT: kvc_rope_set = 0;
pub const KVC_ROPE_SET_LONG: kvc_rope_set = 1;
pub type kvc_rope_set = ::core::ffi::c_uint;
#[doc = " Id of an open forward: opaque, never 0, below 2^63."]
pub type kvc_forward = u64;
#[doc = " the node is a root: it follows the last committed token of its sequence"]
pub const KVC_TREE_ROOT: kvc_tree_parent = -1;
#[doc = " the token is not a node, but a plain token"]
pub const KVC_TREE_NONE: kvc_tree_parent = -2;
#[doc = " Values of kvc_batch.tree_parents other than the number of a parent node."]
pub type kvc_tree_parent = ::core::ffi::c_int;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_batch {
    pub struct_size: u32,
    #[doc = " rows of the batch, 0..max_sequences"]
    pub num_sequences: i32,
    #[doc = " [num_sequences], distinct; 0 = an inert row, whose tokens are padding"]
    pub sequences: *const kvc_seq,
    #[doc = " [num_sequences], number of new tokens of each row, >= 1; an inert row may have 0"]
    pub append_lengths: *const i32,
    #[doc = " the forward covers the layers [layer_begin, layer_end); both 0 = all layers. Every layer\nin this range that stores new K and V in this forward must get them, by\nkvc_forward_append or by attend with k and v, before kvc_forward_end. (With\nencoder_group, only layers of the group that it names store. Without encoder_group,\ncross layers store nothing. Layers with compressed rows store only if a row closes.)\nGive a range in two cases: one cache serves several pipeline stages, each of which has\nits own sequences; or the step is a draft that computes only the first layers. The\nlayers outside of the range then lack the tokens of this forward, until truncate drops\nthese tokens. While a layer lacks tokens, ORDER is returned by exports of these tokens,\nand by forwards whose range contains the layer"]
    pub layer_begin: i32,
    pub layer_end: i32,
    #[doc = " nullable: no trees. [T]: the parent node of each new token, or KVC_TREE_ROOT (token\ntrees: see kvc_seq_commit). In a row without a tree, all tokens have KVC_TREE_NONE.\nIgnored in inert rows"]
    pub tree_parents: *const i32,
    #[doc = " nullable: no spans. [T]: the id of the span of each new token; 0 = no span. Adjacent\ntokens of one row with the same id form a span, such as an image within a text. Each\ntoken of a span sees all tokens of the span, later ones included. But windows and chunks\nstill hide keys. All tokens of a span must be in the same forward. Ignored in inert\nrows"]
    pub span_ids: *const i32,
    #[doc = " 0 = the new tokens belong to the sequences. 1 + g = the new tokens are appended to the\nencoder sequences in cross group g. In such a forward, call kvc_forward_append for\nlayers of group g, and no attend. The lengths of the sequences do not change"]
    pub encoder_group: i32,
    #[doc = " 0"]
    pub reserved: u32,
    #[doc = " 0 = the forward is in no graph, and gets its own id. Else a graph from kvc_graph_create:\nthe forward opens in this graph, and has the id of the graph"]
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
#[doc = " k already has the rotation that the cache stores, so the library does not rotate k. With this\nflag, k and v of a quantised layer may be given as the bytes that the cache stores (both of\nthem, or neither). The dtype of stored bytes is the dtype of the layer, or uint8. A row of\nuint4 has D/2 bytes, and a row of float4 has D/2 + D/16 bytes"]
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
    #[doc = " borrowed; [>= T, Hkv, Dv], as k. KVC_LAYER_KEYS_ONLY: NULL. MLA: either v is NULL and k has whole\nrows, or v has the latent parts [>= T, 1, latent_dim] and k has the rotary parts [>= T, 1,\nD - latent_dim]"]
    pub v: *const DLTensor,
    #[doc = " nullable: the angles follow from the rope fields of the layer and the positions of the\ntokens. Borrowed; [>= T, 2, rope_dim / 2] float32, compact: [t, 0, i] is the cos of the\nangle of pair i for token t, and [t, 1, i] is the sin of this angle. If the scaling has an\nattention factor, the caller multiplies cos and sin by the factor. Use the table for\nangles that only the caller can compute (M-RoPE, dynamic NTK: docs/reference/rope.md).\nNeeds KVC_ROPE_ON_APPEND. Give the same table to the attend of the layer"]
    pub rope_cos_sin: *const DLTensor,
    #[doc = " needed if k and v are stored bytes of a format with scales after the rows of a page; else NULL.\nBorrowed. int8 and uint4: [>= T, Hkv] float32, the scale of each row. Row\nformats: the scales of each row, in the dtype and shape of an export (kvc_exported.k_scale).\n(For stored bytes of float8 and float4, k_scale is NULL: k_scales of the layer's config apply,\nand the block scales of float4 are part of the stored bytes)"]
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
#[doc = " a query also sees the later tokens of its row. A window still limits the first key that a\nquery sees, and a chunk limits the first and the last key. Nodes of a tree still see only\ntheir ancestors"]
pub const KVC_ATTEND_NON_CAUSAL: kvc_attend_flags = 1;
#[doc = " attend only to keys of earlier steps"]
pub const KVC_ATTEND_PAST: kvc_attend_flags = 2;
#[doc = " attend only to keys of this step's tokens. To compute the two parts separately, call attend\ntwice for a layer: once with PAST, and once with SELF. Then merge the two results with\nkvc_merge_states"]
pub const KVC_ATTEND_SELF: kvc_attend_flags = 4;
#[doc = " ALiBi subtracts slope * (p_q - p_k), not slope * |p_q - p_k|. So keys after the query get\nhigher scores. Queries see such keys only with NON_CAUSAL and in spans"]
pub const KVC_ATTEND_ALIBI_SIGNED: kvc_attend_flags = 8;
#[doc = " rel_bias adds 0 at distances for which it has no entry"]
pub const KVC_ATTEND_REL_BIAS_ZERO: kvc_attend_flags = 16;
#[doc = " this layer ignores the spans of the step"]
pub const KVC_ATTEND_NO_SPANS: kvc_attend_flags = 32;
#[doc = " for all queries of a row, the window (or chunk) begins where it begins for the row's\nfirst new token. With NON_CAUSAL, all queries of a row then see the same keys (in a\nchunked group, if the new tokens of the row lie in one chunk). UNSUPPORTED in steps with\ntrees"]
pub const KVC_ATTEND_STEP_WINDOW: kvc_attend_flags = 64;
pub type kvc_attend_flags = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_attend_args {
    pub struct_size: u32,
    #[doc = " KVC_ATTEND_*; not PAST and SELF together"]
    pub flags: u32,
    #[doc = " borrowed; [>= T, Hq, D] float32, float16 or bfloat16; innermost stride 1 (MLA: see w_uk)"]
    pub q: *const DLTensor,
    #[doc = " borrowed; as kvc_append_args.k. nullable, together with v: nothing is stored, because the layer\nwas appended already, reads K and V of another layer (kvc_layer_config.kv_layer), or is a cross\nlayer"]
    pub k: *const DLTensor,
    #[doc = " nullable, together with k (MLA: also alone); as kvc_append_args.v"]
    pub v: *const DLTensor,
    #[doc = " borrowed, its data is written; [>= T, Hq, Dv] float32, float16 or bfloat16. Must not overlap q, k\nor v. Tokens of inert rows, and rows from T on, are not written"]
    pub out: *const DLTensor,
    #[doc = " nullable: not computed. Borrowed, its data is written; [>= T, Hq] float32: the natural logarithm\nof the sum of exponentials of the scores. The logit of an attention sink (`sinks`) counts as a\nscore. A row that is not written in out is not written in lse"]
    pub lse: *const DLTensor,
    #[doc = " 1e-30..1e30; 0 = the softmax_scale of the layer"]
    pub softmax_scale: f64,
    #[doc = " a score becomes softcap * tanh(score / softcap); 1e-6..1e30; 0 = no cap"]
    pub softcap: f64,
    #[doc = " nullable: no ALiBi. Borrowed; [Hq] float32: slope * |p_q - p_k| is subtracted from scores,\nwhere p_q and p_k are the positions of query and key (see also KVC_ATTEND_ALIBI_SIGNED)"]
    pub alibi_slopes: *const DLTensor,
    #[doc = " nullable: no attention sinks. Borrowed; [Hq] float32: a logit for each head. The logit takes part\nin the softmax, but has no value vector. It is neither scaled nor capped. If two calls compute\nthe parts PAST and SELF of a layer, give sinks to only one of the calls"]
    pub sinks: *const DLTensor,
    #[doc = " nullable; as kvc_append_args.rope_cos_sin. The table rotates q, and k if k is given.\nIn a full group, the table is UNSUPPORTED if a sequence is longer than its streaming\nwindow, because q is then rotated twice. In a full group of a deterministic cache, it is\nUNSUPPORTED if any sequence of the step has streaming sinks, whatever its length"]
    pub rope_cos_sin: *const DLTensor,
    #[doc = " nullable, together with w_uv. Borrowed; [Hq, Dn, latent_dim] float32, float16 or bfloat16;\ninnermost stride 1; Dn 1..1024 - R"]
    pub w_uk: *const DLTensor,
    #[doc = " nullable, together with w_uk. Borrowed; [Hq, Dv, latent_dim], as w_uk; Dv 1..1024"]
    pub w_uv: *const DLTensor,
    #[doc = " nullable: no lists. Borrowed; [>= T, 1 or Hkv, k] int32, innermost stride 1: lists of k\nentries. A query has one list for all heads, or one list for each kv head.\nk * index_block <= KVC_MAX_LISTED_KEYS. An entry names tokens by their index in the sequence"]
    pub indices: *const DLTensor,
    #[doc = " b >= 1: an entry i names the tokens [i * b, (i + 1) * b); 0 = 1"]
    pub index_block: i32,
    #[doc = " 0"]
    pub reserved: i32,
    #[doc = " nullable: no bias by distance. Borrowed; [Hq, E] or [>= T, Hq, E] float32, E >= 1, innermost\nstride 1: entry d of the head is added to the score, where d = p_q - p_k. If d is E or more,\nthe last entry is added. If d is negative, the first entry is added (see also\nKVC_ATTEND_REL_BIAS_ZERO)"]
    pub rel_bias: *const DLTensor,
    #[doc = " nullable: no bias by key. Borrowed; [>= num_sequences, >= keys, 1 or Hkv] float32: entry\n[r, j] is added to the scores of key j in row r of the batch. Key j is the token with index j,\nas in indices. `keys` is the length of the longest row that has queries, new tokens\nincluded"]
    pub key_bias: *const DLTensor,
    #[doc = " nullable: no mask. Borrowed; [>= T, >= keys] or [>= T, 1 or Hkv, >= keys] bool or uint8, innermost\nstride 1: an entry [t, j] or [t, head, j] that is 0 hides key j from the query of token t. Tokens\nare counted as in q, and keys as in key_bias. A mask cannot show a key that the layer hides.\nTo let the mask alone decide, set NON_CAUSAL: in a layer without window and chunks, a query then\nsees all keys of its row, unless the row has a tree or a streaming window"]
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
#[doc = " the largest number of tokens that a list may name"]
pub const KVC_MAX_LISTED_KEYS: _bindgen_ty_1 = 65536;
pub type _bindgen_ty_1 = ::core::ffi::c_uint;
#[doc = " the score is the sum over all heads h of weights[h] * max(0, q[h].k); each query has one\nlist"]
pub const KVC_SELECT_RELU_SUM: kvc_select_rule = 0;
#[doc = " the score in head h is q[h].k; each query has one list for each head"]
pub const KVC_SELECT_EACH_HEAD: kvc_select_rule = 1;
#[doc = " How kvc_forward_select scores a token."]
pub type kvc_select_rule = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_select_args {
    pub struct_size: u32,
    #[doc = " KVC_SELECT_*"]
    pub rule: i32,
    #[doc = " borrowed; [>= T, Hq, D] float32, float16 or bfloat16; innermost stride 1. Head h scores the\nkeys of kv head h / (Hq / Hkv)"]
    pub q: *const DLTensor,
    #[doc = " KVC_SELECT_RELU_SUM: borrowed; [>= T, Hq] float32, of any sign; nullable: all 1. Else NULL"]
    pub weights: *const DLTensor,
    #[doc = " borrowed, its data is written: the chosen entries. [>= T, lists, k] int32, innermost stride 1.\n`lists` is 1, or Hq with KVC_SELECT_EACH_HEAD. k * index_block <= KVC_MAX_LISTED_KEYS. The data\nmust not overlap another tensor. Tokens of inert rows, and rows from T on, are not written"]
    pub indices: *const DLTensor,
    #[doc = " nullable: all tokens that the query sees are scored. Borrowed; [>= T, 1 or lists, n]\nint32, with entries as in kvc_attend_args.indices: a token is scored only if an entry of\nthis tensor names it"]
    pub candidates: *const DLTensor,
    #[doc = " nullable; as kvc_append_args.rope_cos_sin, for q"]
    pub rope_cos_sin: *const DLTensor,
    #[doc = " b >= 1: an entry i of indices names the tokens [i * b, (i + 1) * b). The score of an entry is\nthe largest score among its tokens that the query sees. 0 = 1"]
    pub index_block: i32,
    #[doc = " the number of tokens that an entry of candidates names, like index_block for indices; 0 = 1"]
    pub candidate_block: i32,
    #[doc = " the entries 0..first_blocks - 1 are always chosen. These entries count towards k"]
    pub first_blocks: i32,
    #[doc = " the entries e - last_blocks + 1..e are always chosen, where e is the entry of the query's own\ntoken. These entries count towards k. first_blocks + last_blocks is at most k"]
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
    #[doc = " number of results to merge, 1 or more"]
    pub num_parts: i32,
    #[doc = " [num_parts], borrowed; each [>= T, H, Dv] float32, float16 or bfloat16; innermost\nstride 1"]
    pub outputs: *const *const DLTensor,
    #[doc = " [num_parts], borrowed; each [>= T, H] float32"]
    pub lses: *const *const DLTensor,
    #[doc = " borrowed, its data is written; [T, H, Dv] float32, float16 or bfloat16. The shape of\nout defines T, H and Dv. out may be outputs[0], but must not overlap any other part"]
    pub out: *const DLTensor,
    #[doc = " nullable: not computed. Borrowed, its data is written; [T, H] float32. lse may be\nlses[0]"]
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
#[doc = " The position of each token of an open forward, and the last token of each row. The library owns the arrays, and the shapes\n and strides of the tensors. All of them are valid until the forward closes, or in a graph until kvc_graph_destroy. In a\n graph the arrays have max_tokens and max_sequences of kvc_graph_config in place of T and num_sequences. Entries that the\n step does not use have position 0 and last row -1."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_forward_info {
    pub struct_size: u32,
    #[doc = " rows of the batch, inert rows included"]
    pub num_sequences: i32,
    #[doc = " T"]
    pub num_tokens: i64,
    #[doc = " [T]: position of each token in its sequence. A tree node has position\nlength + depth, and a token of an inert row has position 0"]
    pub positions_host: *const i32,
    #[doc = " [num_sequences]: index in [0, T) of the last token of each row; -1 = the row has no\ntokens"]
    pub last_rows_host: *const i32,
    #[doc = " the data of positions_host on the context's device: int32 [T]"]
    pub positions: DLTensor,
    #[doc = " the data of last_rows_host on the context's device: int32 [num_sequences]"]
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
#[doc = " Settings of a graph. A graph is for steps whose calls are recorded once and then replayed. The recording is a CUDA graph,\n or a compiled program that has the arguments of its calls as constants.\n\n   kvc_graph_config config;  kvc_graph_config_init(&config);                  // once\n   config.max_sequences = config.max_tokens = 64;                             // decode, up to 64 rows\n   if (kvc_graph_create(cache, &config, &graph, &error)) return report(error.message);\n   batch.graph = graph;\n   for (;;) {                                                                 // each step\n     ... this step's batch.sequences, batch.append_lengths, batch.num_sequences ...\n     if (kvc_forward_begin(cache, &batch, NULL, &step, &error)) return report(error.message);\n     replay();        // recorded: the model, with kvc_forward_attend(cache, graph, layer, &args[layer], &error) in it\n     kvc_forward_end(cache, graph, &error);\n   }\n\n   Ids        In every step, the forward in a graph has the id of the graph. A call with that id acts on the forward that\n              is open in the graph. If no forward is open in the graph, the call returns KVC_ERROR_STALE and does nothing.\n   Addresses  kvc_forward_get_info and kvc_forward_tables give the same addresses in every step. The shapes are those of\n              the graph's capacity. Entries that a step does not use are inert: position 0, slot -1, last row -1, table\n              rows without keys. Call kvc_forward_tables in each step to fill the tables. When a forward closes, the\n              generation word of its tables (kvc_tables.generation_word) becomes 0, which means stale. The word stays 0\n              until the next call of kvc_forward_tables.\n   Tensors    On a GPU, tensors of recorded calls have at least max_tokens rows, and tensors of states have at least\n              max_sequences rows, because a later step may have more rows. On the CPU, the rows of the step suffice. Rows\n              after the last row of the step are not written.\n   CUDA       Run one step without a capture first. Then capture append, attend, load_state and store_state between a begin\n              and an end. All other calls on the cache that use a stream must be outside of the capture (else ORDER).\n              Stateless calls and kvc_merge_states may be captured too. kvc_forward_end checks that each layer in the range\n              was appended in the graph at least once. But it cannot check what a replay has stored, so replay all captured\n              layers before kvc_forward_end. A replay while no forward is open writes nothing. Use one stream for all\n              forwards of a graph.\n\n A graph has buffers for one forward. This forward does not count towards max_open_forwards. Recordings for several batch\n sizes can use the same graph, up to its capacity. So a server needs only one graph."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_graph_config {
    pub struct_size: u32,
    #[doc = " 0"]
    pub flags: u32,
    #[doc = " rows of a step, at most max_sequences of the cache; 0 = max_sequences of the cache"]
    pub max_sequences: i32,
    #[doc = " tokens of a step, at most max_batch_tokens of the cache; 0 = max_batch_tokens of the cache"]
    pub max_tokens: i32,
    #[doc = " columns of block tables, 1..2^26; 0 = num_pages of the group. Tables of KVC_TABLES_BRANCHES\nhave their own number of columns"]
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
#[doc = " K and V together: [pages, 2, Hkv, page_size, D]; only if the cache stores them in one pool"]
pub const KVC_POOL_KV: kvc_pool = 0;
#[doc = " [pages, Hkv, page_size, D]"]
pub const KVC_POOL_K: kvc_pool = 1;
#[doc = " [pages, Hkv, page_size, Dv]; MLA: the first latent_dim dims of KVC_POOL_K"]
pub const KVC_POOL_V: kvc_pool = 2;
#[doc = " scales of K, float32: [pages, Hkv, page_size] for int8 and uint4; [Hkv] for float8 and float4\n(ones if the config gives no scales). Row formats with scales after the rows of a page: [pages,\nHkv, page_size, scales of a row] uint8. FP8_BLOCKS has float32 instead, and no last dim if a row\nhas one scale (128 dims)"]
pub const KVC_POOL_K_SCALE: kvc_pool = 3;
#[doc = " scales of V, in the same shapes"]
pub const KVC_POOL_V_SCALE: kvc_pool = 4;
#[doc = " ============================================================================================\n 8  Tensors: views, exports, imports\n ============================================================================================"]
pub type kvc_pool = ::core::ffi::c_uint;
#[doc = " the view may be written. Without this flag, the view has DLPack's READ_ONLY flag"]
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
    #[doc = " KVC_EXPORT_*; 0 = all parts that the layer has (MLA: only K and its scales, because V is part of\nK)"]
    pub parts: u32,
    #[doc = " 0"]
    pub reserved: u32,
    #[doc = " tokens [position_begin, position_end) of the sequence are exported"]
    pub position_begin: i64,
    #[doc = " 0 = the sequence's length, so [0, 0) cannot be requested. Cross layers: both positions are\npositions in the encoder sequence"]
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
#[doc = " The tensors that an export returned. A part that was not requested is NULL. Release each tensor by its deleter."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_exported {
    pub struct_size: u32,
    pub reserved: u32,
    #[doc = " [tokens, Hkv, D] of the layer's dtype. float8: as uint8. uint4, float4 and row\nformats: uint8, with the bytes of a row in the last dim"]
    pub k: *mut DLManagedTensorVersioned,
    #[doc = " [tokens, Hkv, Dv], with a dtype as k"]
    pub v: *mut DLManagedTensorVersioned,
    #[doc = " scales of k, float32: [tokens, Hkv] for int8 and uint4; [Hkv] for float8 and\nfloat4. Row formats with scales after the rows of a page: [tokens, Hkv, scales of a\nrow] uint8. FP8_BLOCKS has float32 instead, and no last dim if a row has one scale\n(128 dims)"]
    pub k_scale: *mut DLManagedTensorVersioned,
    #[doc = " scales of v, in the same shapes"]
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
#[doc = " k and v are as kvc_seq_export gave them: see KVC_APPEND_AS_STORED"]
pub const KVC_IMPORT_AS_STORED: kvc_import_flags = 1;
pub type kvc_import_flags = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_import_args {
    pub struct_size: u32,
    #[doc = " KVC_IMPORT_*"]
    pub flags: u32,
    #[doc = " number of layers of the cache"]
    pub num_layers: i32,
    #[doc = " 0"]
    pub reserved: u32,
    #[doc = " [num_layers], each [T, Hkv, D] of that layer; T is the same in all, 1..max_batch_tokens. NULL\nfor a layer that reads K and V of another layer (kvc_layer_config.kv_layer), and for a cross\nlayer"]
    pub k: *const *const DLTensor,
    #[doc = " [num_layers], each [T, Hkv, Dv], or as kvc_append_args.v; NULL where k is NULL. Nullable if\nevery layer is MLA"]
    pub v: *const *const DLTensor,
    #[doc = " nullable: no scales. [num_layers], each as kvc_append_args.k_scale, or NULL"]
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
#[doc = " A copy of tokens that the engine must make in its own pools. Only a cache with KVC_STORAGE_NONE has such copies:\n\n   config.storage = KVC_STORAGE_NONE;                       // page ids and tables, no K and V\n   ...\n   kvc_seq_fork(cache, n, parents, positions, children, NULL, &error);\n   if (kvc_cache_take_copies(cache, copies, sizeof copies[0], CAPACITY, &num_copies, &error)) return report(error.message);\n   copy_in_my_pools(copies, num_copies);                    // one after another, in each layer of copies[i].group\n   if (kvc_forward_begin(cache, &batch, NULL, &step, &error)) return report(error.message);\n   ... kvc_cache_take_copies, copy_in_my_pools ...          // begin replaces a shared last page by a copy\n   ... store the new tokens, attend ...\n   kvc_forward_end(cache, step, &error);\n\n Four calls queue copies. kvc_seq_fork and kvc_prefix_attach copy a partial last page. begin copies a shared last page. A\n commit moves kept nodes to the front, and can queue several copies for one sequence and group. The other calls queue at\n most one for each sequence and group.\n   Order   Make the copies one after another, in the order in which kvc_cache_take_copies gives them. Make the copies of a\n           fork, attach or commit before the next step stores or reads anything. Make the copies of begin before the step\n           that it begins reads the sequence.\n   Taking  While copies of earlier calls wait, kvc_forward_begin returns ORDER, so that no step overwrites what they read.\n           When max_sequences * num_groups copies wait, kvc_seq_fork, kvc_prefix_attach and kvc_seq_commit return\n           ORDER too.\n   Abort   An abort drops those copies of its step that were not taken. kvc_cache_clear drops all copies.\n The layout of this struct never changes."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_copy {
    #[doc = " first slot to read. The `count` slots from there on are in one page"]
    pub source_slot: i64,
    #[doc = " first slot to write. The `count` slots from there on are in one page. The two ranges of a commit\nmay overlap, with target_slot below source_slot: copy as memmove does"]
    pub target_slot: i64,
    #[doc = " the copy is needed in every layer of this group"]
    pub group: i32,
    #[doc = " number of tokens, >= 1"]
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
#[doc = " Counts of one group or of the whole cache. \"Since create\" means since kvc_cache_create."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_stats {
    pub struct_size: u32,
    #[doc = " sequences that exist"]
    pub num_sequences: i32,
    #[doc = " pages of the group, or of all groups together"]
    pub pages_total: i64,
    #[doc = " pages with at least one reference"]
    pub pages_used: i64,
    #[doc = " pages_total - pages_used"]
    pub pages_free: i64,
    #[doc = " used pages that belong to two or more sequences"]
    pub pages_shared: i64,
    #[doc = " the largest pages_used since create"]
    pub pages_peak: i64,
    #[doc = " stored tokens; a shared token counts once (whole cache: those of the largest group)"]
    pub tokens_held: i64,
    #[doc = " those of tokens_held that belong to two or more sequences"]
    pub tokens_shared: i64,
    #[doc = " sum of the lengths of all sequences, which a cache without sharing would store"]
    pub tokens_logical: i64,
    #[doc = " bytes of slots without a token in used pages"]
    pub fragmentation_bytes: i64,
    #[doc = " bytes of the pools; as kvc_estimate.storage_bytes"]
    pub storage_bytes: i64,
    #[doc = " pages that the prefix index refers to"]
    pub pages_published: i64,
    #[doc = " pages that only the prefix index refers to. Calls that are short of pages evict them. They\ncount as used"]
    pub pages_idle: i64,
    #[doc = " idle pages that were evicted since create"]
    pub pages_evicted: i64,
    #[doc = " kvc_prefix_attach calls that succeeded since create. This number is the same in every\ngroup"]
    pub prefix_attaches: i64,
    #[doc = " tokens that these attach calls found"]
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
#[doc = " a query sees no later key, as with window_right 0"]
pub const KVC_FLASH_ATTN_CAUSAL: kvc_flash_attn_flags = 1;
#[doc = " rotated pair i is dims 2i, 2i+1. Without this flag: i, i + rotary_dim/2"]
pub const KVC_FLASH_ATTN_ROTARY_INTERLEAVED: kvc_flash_attn_flags = 2;
#[doc = " window_left applies. Without this flag, a query sees all keys before it"]
pub const KVC_FLASH_ATTN_WINDOW_LEFT: kvc_flash_attn_flags = 4;
#[doc = " window_right applies. Without this flag, a query sees all keys after it"]
pub const KVC_FLASH_ATTN_WINDOW_RIGHT: kvc_flash_attn_flags = 8;
#[doc = " as KVC_ATTEND_ALIBI_SIGNED"]
pub const KVC_FLASH_ATTN_ALIBI_SIGNED: kvc_flash_attn_flags = 16;
#[doc = " These calls are for engines that keep K and V in their own tensors. They need a context, and no kvc_cache. The following\n is a decode step over a paged cache:\n\n   kvc_flash_attn_args args;  kvc_flash_attn_args_init(&args);\n   args.q = &q;  args.k = &k;  args.v = &v;  args.out = &out;           // of the new tokens, [B, 1, heads, dims]\n   args.k_cache = &k_cache;  args.v_cache = &v_cache;                   // [pages, page_size, Hkv, dims]\n   args.cache_seqlens = &lengths;  args.block_table = &table;           // int32 [B], [B, max_pages]\n   args.flags = KVC_FLASH_ATTN_CAUSAL;\n   if (kvc_flash_attn_with_kvcache(context, &args, NULL, &error)) return report(error.message);\n\n More letters: a call has B rows, which are sequences. A row has Sq queries and Sn new tokens. All rows together have Tq\n queries and Tn new tokens.\n\n Tensors are borrowed and on the context's device. Index tensors (lengths, offsets, cache rows, slots, block_table) are\n int32 or int64. They may have any stride, and stride 0 means one value for all. Lengths may have rank 0. On a GPU, the\n index tensors of a call are either all on the host or all on the device. (An index tensor of rank 0 may be on the host in\n both cases.)\n   On the host    The call reads and checks every value once.\n   On the device  The call reads nothing back, uploads nothing and waits for nothing. The shapes give the largest possible\n                  sizes, which decide how the work is divided. At each replay, a captured call uses the values that its\n                  index tensors have then. The call skips a row with a value out of its range: it stores nothing of the\n                  row, and does not write the row of out. It checks page ids only with KVC_CONTEXT_VALIDATE, which also\n                  reports the bad value."]
pub type kvc_flash_attn_flags = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_flash_attn_args {
    pub struct_size: u32,
    #[doc = " KVC_FLASH_ATTN_*"]
    pub flags: u32,
    #[doc = " [B, Sq, Hq, D], or with cu_seqlens_q [>= Tq, Hq, D]. float32, float16 or bfloat16; without\nrotary also float8. In this tensor, and in all tensors below whose last dimension is the head\ndim, the innermost stride is 1"]
    pub q: *const DLTensor,
    #[doc = " [pages, page_size, Hkv, D] with block_table, else [cache rows, capacity, Hkv, D]. float32,\nfloat16, bfloat16, float8_e4m3fn or float8_e5m2. The other strides are free, so a cache in HND\norder can be given as a transposed view. It is written if k is given. Any page size, any D and\nDv up to 1024"]
    pub k_cache: *const DLTensor,
    #[doc = " the shape of k_cache with Dv in place of D, of the same dtype. k_cache and v_cache may be views\nof one buffer if they have no element in common"]
    pub v_cache: *const DLTensor,
    #[doc = " nullable, together with v: nothing is appended. [B, Sn, Hkv, D], or with cu_seqlens_k_new\n[>= Tn, Hkv, D]. The new keys are stored after the cached tokens of each row, before attention\nis computed. float32, float16, bfloat16, or the dtype of the cache, which is stored\nunchanged"]
    pub k: *const DLTensor,
    #[doc = " nullable, together with k; the shape of k with Dv in place of D"]
    pub v: *const DLTensor,
    #[doc = " nullable: none. Absorbed latent attention: the latent part of the queries, with the shape of q\nwith Dv in place of D, and the dtype of q. Scores are then q.k + qv.v: v_cache has the latent\nrows, and k_cache has their rotary parts. D + Dv <= 1152. It is fast if Hkv is 1 and each row\nof k_cache is stored directly after the same row of v_cache"]
    pub qv: *const DLTensor,
    #[doc = " written; [B, Sq, Hq, Dv] or [>= Tq, Hq, Dv]; float32, float16 or bfloat16"]
    pub out: *const DLTensor,
    #[doc = " nullable: not computed. Written; [B, Hq, Sq], or with cu_seqlens_q [Hq, >= Tq], float32:\nthe natural logarithm of the sum of exponentials of the scores, with the logit of the\nsink"]
    pub softmax_lse: *const DLTensor,
    #[doc = " [B], or of rank 0: the number of cached tokens of each row, without the new tokens.\nThe call does not change it. Nullable without k: each row has the whole capacity"]
    pub cache_seqlens: *const DLTensor,
    #[doc = " nullable: another name for cache_seqlens. Only one of the two may be given"]
    pub seqused_k: *const DLTensor,
    #[doc = " nullable: row b uses cache row b. [B]: the cache row of each row, or with block_table\nthe row of block_table. With k, all entries must differ"]
    pub cache_batch_idx: *const DLTensor,
    #[doc = " nullable: 0. [B]: index of the first valid key of each row, at most cache_seqlens"]
    pub cache_leftpad: *const DLTensor,
    #[doc = " nullable: the cache is not paged. [rows, max_pages], stride 1 between columns: the\npage ids of each row, in order of position. Entries that the call does not use may\nhave any value, such as -1"]
    pub block_table: *const DLTensor,
    #[doc = " nullable: q is [B, Sq, Hq, D]. [B + 1], begins with 0 and never descends: the queries\nof row b are [cu_seqlens_q[b], cu_seqlens_q[b+1])"]
    pub cu_seqlens_q: *const DLTensor,
    #[doc = " nullable; [B + 1]: the same for k and v; ignored without k"]
    pub cu_seqlens_k_new: *const DLTensor,
    #[doc = " nullable, together with rotary_sin; only with k. [positions, rotary_dim/2] float32,\nfloat16 or bfloat16. The first rotary_dim dims of q and k are rotated. The new keys\nof row b have the positions cache_seqlens[b], cache_seqlens[b] + 1, and so on. Its\nqueries have the same positions. But without causal and windows, all queries of row b\nhave position cache_seqlens[b]. Left padding does not change the positions"]
    pub rotary_cos: *const DLTensor,
    #[doc = " as rotary_cos"]
    pub rotary_sin: *const DLTensor,
    #[doc = " nullable; [B]: the position of the first new token of each row, in place of\ncache_seqlens. Ignored without k or rotary_cos"]
    pub rotary_seqlens: *const DLTensor,
    #[doc = " nullable; [B, Hkv] float32, with float8 q: q is multiplied by it"]
    pub q_descale: *const DLTensor,
    #[doc = " nullable; [B, Hkv] float32, with a float8 cache: k_cache is multiplied by it. New k\nthat is not float8 is stored as k / k_descale, rounded to the nearest value (ties to\neven). If the quotient is out of the range of the type, the largest finite value is\nstored, with its sign"]
    pub k_descale: *const DLTensor,
    #[doc = " nullable; [B, Hkv]: the same for v"]
    pub v_descale: *const DLTensor,
    #[doc = " nullable; [Hq] or [B, Hq] float32: slope * |p_q - p_k| is subtracted from scores (see\nKVC_ATTEND_ALIBI_SIGNED)"]
    pub alibi_slopes: *const DLTensor,
    #[doc = " nullable; [Hq] float32, float16 or bfloat16: a logit for each head, which takes part\nin the softmax without a value"]
    pub sinks: *const DLTensor,
    #[doc = " 1e-30..1e30; 0 = D^-0.5, with qv (D + Dv)^-0.5"]
    pub softmax_scale: f64,
    #[doc = " a score becomes softcap * tanh(score / softcap); 1e-6..1e30; 0 = no cap"]
    pub softcap: f64,
    #[doc = " with KVC_FLASH_ATTN_WINDOW_LEFT: >= 0, a query at position p sees no key before\np - window_left. Else 0"]
    pub window_left: i32,
    #[doc = " with KVC_FLASH_ATTN_WINDOW_RIGHT: >= 0, a query at position p sees no key after\np + window_right. Else 0"]
    pub window_right: i32,
    #[doc = " c > 0: a query at position p sees only keys j with j/c == p/c. p and j are counted from the\nfirst valid key. 0 = no chunks"]
    pub attention_chunk: i32,
    #[doc = " number of parts into which the keys of each row are divided, at most 256; fewer if there are\nfew keys. 0 = chosen by cost"]
    pub num_splits: i32,
    #[doc = " nullable: no lists. [B, Sq, 1 or Hkv, k] int32, or with cu_seqlens_q [>= Tq, 1 or Hkv, k]; k at\nmost KVC_MAX_LISTED_KEYS. See kvc_flash_attn_with_kvcache"]
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
    #[doc = " [>= T, Hkv, D] float32, float16, bfloat16, or the dtype of the cache, which is stored\nunchanged; innermost stride 1. Latent form: the rotary parts, [>= T, 1, D - L], not\nfloat8"]
    pub k: *const DLTensor,
    #[doc = " [>= T, Hkv, Dv], as k. Latent form: the latent parts, [>= T, 1, L], not float8"]
    pub v: *const DLTensor,
    #[doc = " written; [pages, page_size, Hkv, D] as kvc_flash_attn_args.k_cache. Latent form:\n[pages, page_size, 1, D], whose rows are [latent | rotary]"]
    pub k_cache: *const DLTensor,
    #[doc = " written; [pages, page_size, Hkv, Dv] of the same dtype. NULL = the latent form, in which\nk_cache has whole MLA rows"]
    pub v_cache: *const DLTensor,
    #[doc = " int32 or int64 [T]: the slot of each row, page * page_size + offset. A row with a negative\nslot is skipped. T is at most 2^26"]
    pub slot_mapping: *const DLTensor,
    #[doc = " nullable: every scale is 1. [1] or [Hkv] float32, with a float8 cache: k (latent form: the\nwhole row) is stored as k / k_scale, rounded to the nearest value (ties to even). If the\nquotient is out of the range of the type, the largest finite value is stored, with its\nsign"]
    pub k_scale: *const DLTensor,
    #[doc = " nullable; the same for v (latent form: NULL)"]
    pub v_scale: *const DLTensor,
    #[doc = " nullable, together with rotary_sin and positions: k is not rotated. As in\nkvc_flash_attn_args: the first dims of k are rotated"]
    pub rotary_cos: *const DLTensor,
    #[doc = " as rotary_cos"]
    pub rotary_sin: *const DLTensor,
    #[doc = " nullable, together with rotary_cos; int32 or int64 [T]: for each stored token, the row of\nrotary_cos and rotary_sin by which it is rotated"]
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
#[doc = " in steps with branches (trees; drafts with top_k > 1): the keys that all branches share"]
pub const KVC_TABLES_PREFIX: kvc_tables_part = 1;
#[doc = " in steps with branches: the other keys of each branch. Each token has a row with its visible\nancestors and the token itself"]
pub const KVC_TABLES_BRANCHES: kvc_tables_part = 2;
#[doc = " in plans with encoder_lens: the keys of the encoder"]
pub const KVC_TABLES_ENCODER: kvc_tables_part = 3;
#[doc = " ============================================================================================\n 11  Tables for other kernels\n ============================================================================================\n Tables tell the attention kernels of an engine where the keys of a step are: block tables, lengths, slots. A cache makes\n them for an open forward (kvc_forward_tables). For a server with its own allocator, a plan makes them from the arrays of\n the server (kvc_plan_*). docs/reference/tables.md lists the kinds of steps, and says what each array means.\n\n   kvc_tables tables;  kvc_tables_init(&tables);\n   if (kvc_forward_tables(cache, step, group, &tables, &error)) return report(error.message);\n   fa3(q, k_pool, v_pool, &tables.block_table, &tables.cache_seqlens, &tables.cu_seqlens_q, tables.max_seqlen_q,\n       tables.causal);\n\n A table lists exactly the keys that queries see, so a kernel needs no mask except causality. It needs a window only if a\n row has several queries, in a sliding group or with a streaming window. Where one table cannot express what queries see,\n there are two tables. Compute attention with each of them, and merge the two results by kvc_merge_states."]
pub type kvc_tables_part = ::core::ffi::c_uint;
#[doc = " pad_value is the padding. Without this flag it is -1, and in graph mode 0"]
pub const KVC_TABLES_PAD_VALUE: kvc_tables_flags = 1;
#[doc = " tables have page size 1: they list slots in place of pages, and have no leftpad"]
pub const KVC_TABLES_SLOTS: kvc_tables_flags = 2;
pub type kvc_tables_flags = ::core::ffi::c_uint;
#[doc = " block_table"]
pub const KVC_TABLES_DENSE: kvc_tables_arrays = 1;
#[doc = " indptr, indices, last_page_len"]
pub const KVC_TABLES_CSR: kvc_tables_arrays = 2;
#[doc = " slot_mapping, positions, last_rows"]
pub const KVC_TABLES_TOKENS: kvc_tables_arrays = 4;
pub type kvc_tables_arrays = ::core::ffi::c_uint;
#[doc = " Tables of one step. A table has one row for each row of the batch, in the same order. But a row of the batch with chunks\n or branches has several rows of the table, and batch_rows gives the row of the batch for each of them. Tensors are\n borrowed, on the device, int32 and compact unless their comments say otherwise. A tensor that was not requested has ndim\n 0. In graph mode, shapes and maxima are those of the capacity."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_tables {
    pub struct_size: u32,
    #[doc = " KVC_TABLES_PAD_VALUE | KVC_TABLES_SLOTS"]
    pub flags: u32,
    #[doc = " KVC_TABLES_* part"]
    pub part: i32,
    #[doc = " with KVC_TABLES_PAD_VALUE: the entries of block_table after the pages of a row"]
    pub pad_value: i32,
    #[doc = " KVC_TABLES_DENSE | ...; 0 = all"]
    pub arrays: u32,
    #[doc = " 1: the queries of a row are its last keys, and each query sees the keys up to itself. 0: each\nquery sees all keys of its row"]
    pub causal: u32,
    #[doc = " R, the number of rows of the table"]
    pub num_rows: i32,
    #[doc = " T, the number of queries of all rows"]
    pub num_queries: i32,
    #[doc = " page size of block_table and of the CSR arrays: that of the group, or 1 with\nKVC_TABLES_SLOTS"]
    pub page_size: i32,
    #[doc = " a number on the host: the largest number of queries of a row"]
    pub max_seqlen_q: i32,
    #[doc = " a number on the host: the largest element of cache_seqlens"]
    pub max_seqlen_k: i32,
    #[doc = " columns of block_table"]
    pub max_pages: i32,
    #[doc = " number of pages of all rows together, which is the used length of indices"]
    pub num_pages: i64,
    #[doc = " the last element of cu_seqlens_k"]
    pub num_keys: i64,
    #[doc = " of a plan: the number of the build (kvc_plan_check). Of a graph: the number of the step. Else\n0"]
    pub generation: u64,
    #[doc = " [R, max_pages], with a stride between rows: page ids, then padding (FlashAttention)"]
    pub block_table: DLTensor,
    #[doc = " [R]: tokens in the row's pages up to its last key, leftpad and hole included; 0 = no keys"]
    pub cache_seqlens: DLTensor,
    #[doc = " [R + 1]: the queries of row r are tokens [cu_seqlens_q[r], cu_seqlens_q[r+1]) of the step"]
    pub cu_seqlens_q: DLTensor,
    #[doc = " [R + 1]: running sums of the number of keys of each row; leftpad and hole do not count"]
    pub cu_seqlens_k: DLTensor,
    #[doc = " [R + 1]: the pages of row r are indices[indptr[r]..indptr[r+1]) (FlashInfer)"]
    pub indptr: DLTensor,
    #[doc = " [num_pages]: page ids of all rows"]
    pub indices: DLTensor,
    #[doc = " [R]: tokens in the last page of the row, 1..page_size; 0 for a row without pages"]
    pub last_page_len: DLTensor,
    #[doc = " [R]: position of the first key of the row after any sinks (k_start); 0 in a table that lists\nkeys one by one"]
    pub key_starts: DLTensor,
    #[doc = " [R]: tokens of the row's first page before its first key (cache_leftpad)"]
    pub leftpad: DLTensor,
    #[doc = " [R]: row of the batch; -1 = unused (graph mode)"]
    pub batch_rows: DLTensor,
    #[doc = " [R], only if a row has a streaming window: the number of tokens at the start of the row that\nevery query sees"]
    pub sink_tokens: DLTensor,
    #[doc = " [R], together with sink_tokens: the number of tokens after the sinks that no query sees. The\nkeys of the window follow after them"]
    pub hole_tokens: DLTensor,
    #[doc = " int64 [T]: slot of each new token; -1 = padding"]
    pub slot_mapping: DLTensor,
    #[doc = " [T]: position of each new token; a tree node has length + depth"]
    pub positions: DLTensor,
    #[doc = " [rows of the batch]: index in [0, T) of the last token of each row; -1 = none"]
    pub last_rows: DLTensor,
    #[doc = " int64 [1], of a plan or a graph: the generation of the contents of the arrays. Kernels of a\ncaptured graph can compare it. 0 = the arrays are stale, and kernels must write nothing"]
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
#[doc = " each row has one new token. Parts: WHOLE (and ENCODER)"]
pub const KVC_PLAN_DECODE: kvc_plan_mode = 0;
#[doc = " row i has append_lengths[i] new tokens: prefill with or without a cached prefix, also mixed\nwith decoding rows, and draft extend. Parts: WHOLE (and ENCODER)"]
pub const KVC_PLAN_EXTEND: kvc_plan_mode = 1;
#[doc = " each row has num_draft_tokens new tokens. Parts: WHOLE for a chain. With tree_parents: PREFIX\nand BRANCHES"]
pub const KVC_PLAN_VERIFY: kvc_plan_mode = 2;
#[doc = " num_steps draft steps in one build. Step s adds token s to each of the top_k branches of a\nrow. If top_k is 1, the part is WHOLE, and the new token of step s is entry seq_len + s. If\ntop_k is larger, the parts are PREFIX, with whole pages only, and BRANCHES. In the row, a\nregion of whole pages for each branch follows after the whole pages of the prefix. A region\nbegins with the tokens of the prefix's partial last page, and then has the drafts of the\nbranch. In branch 0 these first tokens are in place, and the server copies them to the other\nregions"]
pub const KVC_PLAN_DRAFT_DECODE: kvc_plan_mode = 3;
#[doc = " A plan makes the same tables for a server with its own allocator. The mode of a plan is the kind of its steps.\n\n   kvc_plan_config config;  kvc_plan_config_init(&config);      // once for each kind of step\n   config.mode = KVC_PLAN_VERIFY;  config.num_draft_tokens = 4;  config.page_size = 16;\n   if (kvc_plan_create(context, &config, &plan, &error)) return report(error.message);\n   kvc_plan_args args;  kvc_plan_args_init(&args);              // each step\n   args.seq_lens = &seq_lens;  args.req_to_token = &req_to_token;  args.rows = &req_pool_indices;\n   if (kvc_plan_build(plan, &args, stream, NULL, &error)) return report(error.message);\n   kvc_tables tables;  kvc_tables_init(&tables);\n   if (kvc_plan_tables(plan, 0, &tables, &error)) return report(error.message);\n\n The server lists where the tokens of a row are, as slots in a row of req_to_token or as page ids in a row of block_table.\n Entry i of a row is the place of one token: the slot in column i of req_to_token, or place i % page_size of the page in\n column i / page_size of block_table. A row has the tokens of its encoder first, if any, and then its own tokens by\n position. New tokens are included: the server must allocate places for them before the build."]
pub type kvc_plan_mode = ::core::ffi::c_uint;
#[doc = " graph mode: arrays have the size of the capacity, and their addresses never change. Set\nthe max_* fields"]
pub const KVC_PLAN_GRAPH: kvc_plan_flags = 1;
#[doc = " pad_value is the padding. Without this flag it is -1, and in graph mode 0"]
pub const KVC_PLAN_PAD_VALUE: kvc_plan_flags = 2;
#[doc = " tables have page size 1: they list slots in place of pages, and have no leftpad"]
pub const KVC_PLAN_SLOTS: kvc_plan_flags = 4;
#[doc = " seq_lens count the new tokens of the step too, and a row of length 0 is inert. Not with\nDRAFT_DECODE. Without this flag, seq_lens count only the tokens before the step"]
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
    #[doc = " tokens of a page, 1..65536; 0 = 16"]
    pub page_size: i32,
    #[doc = " VERIFY: 1..1024. Else 0"]
    pub num_draft_tokens: i32,
    #[doc = " DRAFT_DECODE: 1..64. Else 0"]
    pub num_steps: i32,
    #[doc = " DRAFT_DECODE: branches of a row, 1..64; 0 = 1. Else 0"]
    pub top_k: i32,
    #[doc = " with KVC_PLAN_PAD_VALUE: the entries of block_table after the pages of a row"]
    pub pad_value: i32,
    #[doc = " KVC_TABLES_DENSE | ...; 0 = all"]
    pub arrays: u32,
    #[doc = " graph mode: rows of a batch, 1..1048576. Else 0"]
    pub max_rows: i32,
    #[doc = " graph mode with EXTEND: new tokens of a batch, 1..1048576. Else 0"]
    pub max_tokens: i32,
    #[doc = " graph mode: columns of block_table, 1..2^26. Else 0"]
    pub max_pages_per_row: i32,
    #[doc = " w > 0: a query sees the last w keys, its own included, so tables list the last pages only.\n0 = a query sees all keys"]
    pub window_tokens: i64,
    #[doc = " c > 0: a query sees the keys of its own chunk of c positions, up to itself. A row with\nqueries in several chunks has a table row for each of these chunks. 0 = no chunks. Not with\nwindow_tokens"]
    pub chunk_tokens: i64,
    #[doc = " number of pages of the server's pool, 1..2^31 / page_size. Entries of tables are checked\nagainst it. 0 = unknown, which allows ids up to 2^31 / page_size"]
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
#[doc = " DECODE, EXTEND: the caller promises that the rows are those of the last build, in the same order.\nEach row is at least as long as before, and still has all pages that it had. Then the build reads\nonly what is new. (It always writes CSR arrays whole)"]
pub const KVC_PLAN_ROWS_GREW: kvc_plan_build_flags = 1;
pub type kvc_plan_build_flags = ::core::ffi::c_uint;
#[doc = " The arrays of a step. All are borrowed. All are on the host, or, for a plan with KVC_PLAN_GRAPH, all are on the context's\n device. Arrays of one dimension are int32 or int64, and compact. Tables are int32 with innermost stride 1."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_plan_args {
    pub struct_size: u32,
    #[doc = " KVC_PLAN_ROWS_GREW"]
    pub flags: u32,
    #[doc = " [B]: tokens of each row, 0..2^30, without encoder tokens. B may be 0"]
    pub seq_lens: *const DLTensor,
    #[doc = " EXTEND: [B], the number of new tokens of each row, >= 0. Else NULL"]
    pub append_lengths: *const DLTensor,
    #[doc = " nullable: row i of the batch uses row i of block_table or req_to_token. [B]: the row\nthat each row of the batch uses; -1 = an inert row, whose tokens are padding"]
    pub rows: *const DLTensor,
    #[doc = " [rows, columns]: page ids. Give either block_table or req_to_token"]
    pub block_table: *const DLTensor,
    #[doc = " [rows, columns]: the slot of each token. With a page size above 1, the tokens of a page\nmust have consecutive slots, and the first slot must be a multiple of page_size"]
    pub req_to_token: *const DLTensor,
    #[doc = " nullable: no encoder tokens. DECODE, EXTEND: [B], the number of encoder tokens before\nthe tokens of each row"]
    pub encoder_lens: *const DLTensor,
    #[doc = " nullable: drafts are chains. VERIFY: [B * num_draft_tokens], the parent of each draft\nwithin its row, or -1 for a root. Parents come before their children"]
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
#[doc = " ============================================================================================\n 12  Prefix index: what the cache remembers\n ============================================================================================\n A cache with KVC_CACHE_PREFIX_INDEX can keep the pages of tokens after their sequence is removed. A later request that\n begins with the same tokens uses these pages, and computes only the rest. The loop of an engine:\n\n   kvc_prefix_query query;  kvc_prefix_query_init(&query);\n   query.tokens = prompt;  query.num_tokens = n;  query.salt = tenant;\n   kvc_prefix_hit hit;  kvc_prefix_hit_init(&hit);\n   kvc_seq seq;\n   if (kvc_prefix_attach(cache, &query, stream, &hit, &seq, &error)) return report(error.message);\n   ... a forward that appends prompt[hit.tokens .. n) to seq ...         // at least one token, for its logits\n   kvc_prefix_publish(cache, seq, &query, NULL, NULL, &error);           // other requests can now find the prompt\n   ... forwards that append one token each; `prompt` and n grow ...\n   query.tokens = prompt;  query.num_tokens = n;\n   kvc_prefix_publish(cache, seq, &query, NULL, NULL, &error);           // the answer too, for the next request\n   kvc_seq_remove(cache, 1, &seq, &error);                               // the pages stay until other calls need them\n\n   Sharing   Whole pages are shared. A part of a page, of one token or more, is copied to a new page of the new sequence.\n   Groups    A hit is the longest prefix that every group can serve. Full groups need every page up to the end of the hit.\n             Sliding and chunked groups need the pages that the next query sees. Recurrent groups need the states after\n             exactly these tokens. The index has states for the lengths at which sequences were published. The index\n             ignores cross groups, so the new sequence has no encoder tokens.\n   Eviction  A published page that no sequence and no pin holds is idle. kvc_forward_begin, kvc_seq_fork, kvc_seq_import\n             and kvc_prefix_attach evict idle pages when they are short of pages. They evict expired prefixes first, then\n             prefixes of lower priority, then those that kvc_cache_config.prefix_policy chooses. A prefix is evicted after\n             all prefixes that continue it. OUT_OF_PAGES means that there are too few pages even if all idle pages were\n             evicted. Pages that a failed or aborted call evicted stay evicted. Equal calls evict equal pages, so page ids\n             are equal on every rank.\n   Salts     Tokens under different salts, adapters or media never match. K and V must depend only on these and on the\n             tokens so far. So use a different salt for each tenant, and for everything else that changes K and V.\n   Media     A span of tokens may stand for an image or other media, as in section 13. Give the spans with each query.\n             Equal tokens before the first difference of the media still match.\n   Time      The library reads no clock. Give it the time with kvc_cache_set_time.\n In a cache without KVC_CACHE_PREFIX_INDEX, every call of this section except kvc_cache_set_time returns UNSUPPORTED."]
pub type kvc_prefix_query_flags = ::core::ffi::c_uint;
#[doc = " The tokens that a call looks for in the prefix index."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_prefix_query {
    pub struct_size: u32,
    #[doc = " KVC_PREFIX_*; only match and attach use it"]
    pub flags: u32,
    #[doc = " borrowed; [num_tokens], on the host; nullable if num_tokens is 0. Any numbers are allowed"]
    pub tokens: *const i32,
    #[doc = " 0..2^30"]
    pub num_tokens: i64,
    #[doc = " any number; 0 = no salt"]
    pub salt: u64,
    #[doc = " >= 0: the salt applies to the page that contains this token, and to all later pages. Earlier\npages have salt 0. So several tenants can share a system prompt, and nothing after it. The\nfields below are those of kvc_page_keys_args. Their arrays are borrowed, and on the host"]
    pub salt_begin: i64,
    #[doc = " [adapter_bytes]; nullable if adapter_bytes is 0 = no adapter. It applies to all tokens"]
    pub adapter: *const u8,
    #[doc = " 0..2^20"]
    pub adapter_bytes: i64,
    #[doc = " number of spans of tokens that stand for an image or other media; 0..2^30. They may lie\nbeyond the tokens of the query"]
    pub num_media: i64,
    #[doc = " [num_media]: position in the sequence of the first token of each span, ascending"]
    pub media_begins: *const i64,
    #[doc = " [num_media]: number of tokens of each span, > 0. The spans do not overlap"]
    pub media_tokens: *const i64,
    #[doc = " [num_media, 32]: a hash of the media of each span, and of all settings that change how the\nmodel encodes the media"]
    pub media_hashes: *const u8,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_prefix_query"][::core::mem::size_of::<kvc_prefix_query>() - 88usize];
    ["Alignment of kvc_prefix_query"][::core::mem::align_of::<kvc_prefix_query>() - 8usize];
    ["Offset of field: kvc_prefix_query::struct_size"][::core::mem::offset_of!(kvc_prefix_query, struct_size) - 0usize];
    ["Offset of field: kvc_prefix_query::flags"][::core::mem::offset_of!(kvc_prefix_query, flags) - 4usize];
    ["Offset of field: kvc_prefix_query::tokens"][::core::mem::offset_of!(kvc_prefix_query, tokens) - 8usize];
    ["Offset of field: kvc_prefix_query::num_tokens"][::core::mem::offset_of!(kvc_prefix_query, num_tokens) - 16usize];
    ["Offset of field: kvc_prefix_query::salt"][::core::mem::offset_of!(kvc_prefix_query, salt) - 24usize];
    ["Offset of field: kvc_prefix_query::salt_begin"][::core::mem::offset_of!(kvc_prefix_query, salt_begin) - 32usize];
    ["Offset of field: kvc_prefix_query::adapter"][::core::mem::offset_of!(kvc_prefix_query, adapter) - 40usize];
    ["Offset of field: kvc_prefix_query::adapter_bytes"]
        [::core::mem::offset_of!(kvc_prefix_query, adapter_bytes) - 48usize];
    ["Offset of field: kvc_prefix_query::num_media"][::core::mem::offset_of!(kvc_prefix_query, num_media) - 56usize];
    ["Offset of field: kvc_prefix_query::media_begins"]
        [::core::mem::offset_of!(kvc_prefix_query, media_begins) - 64usize];
    ["Offset of field: kvc_prefix_query::media_tokens"]
        [::core::mem::offset_of!(kvc_prefix_query, media_tokens) - 72usize];
    ["Offset of field: kvc_prefix_query::media_hashes"]
        [::core::mem::offset_of!(kvc_prefix_query, media_hashes) - 80usize];
};
#[doc = " What the index has of the tokens of a query."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_prefix_hit {
    pub struct_size: u32,
    #[doc = " -1 = no group makes the hit shorter than known_tokens and the query allow. Else a group that\ndoes: it lacks the page that begins at `tokens`, or (recurrent) a state at a later position"]
    pub limited_by: i32,
    #[doc = " length of the longest prefix that every group can serve"]
    pub tokens: i64,
    #[doc = " how many of these tokens are in a partial last page, which attach copies"]
    pub copied_tokens: i64,
    #[doc = " length of the longest prefix that was published, even if its pages were evicted"]
    pub known_tokens: i64,
    #[doc = " with tiers: what `tokens` would be after kvc_prefix_load, as far as the tiers have searched. It\nleaves out tokens that are faster to compute (section 16). Without tiers: `tokens`"]
    pub load_tokens: i64,
    #[doc = " with tiers: estimated time of this load in nanoseconds, from measurements of the tiers;\n0 = nothing to load, or not measured"]
    pub load_ns: i64,
    #[doc = " the time to compute one token, in nanoseconds, as the cache has measured it (section 16);\n0 = not measured"]
    pub token_ns: i64,
    #[doc = " number of tiers that the call has searched, 0..8: match and load search all tiers of the cache,\nattach and pin search none"]
    pub num_tiers: i32,
    #[doc = " 0"]
    pub reserved: u32,
    #[doc = " [num_tiers], in the order in which the tiers were added: number of tokens after `tokens` that\neach tier has, so far as all groups can serve them, also where computing is faster. A token whose\npages are in several tiers counts for the last tier from which a load would take one of them"]
    pub tier_tokens: [i64; 8usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_prefix_hit"][::core::mem::size_of::<kvc_prefix_hit>() - 128usize];
    ["Alignment of kvc_prefix_hit"][::core::mem::align_of::<kvc_prefix_hit>() - 8usize];
    ["Offset of field: kvc_prefix_hit::struct_size"][::core::mem::offset_of!(kvc_prefix_hit, struct_size) - 0usize];
    ["Offset of field: kvc_prefix_hit::limited_by"][::core::mem::offset_of!(kvc_prefix_hit, limited_by) - 4usize];
    ["Offset of field: kvc_prefix_hit::tokens"][::core::mem::offset_of!(kvc_prefix_hit, tokens) - 8usize];
    ["Offset of field: kvc_prefix_hit::copied_tokens"]
        [::core::mem::offset_of!(kvc_prefix_hit, copied_tokens) - 16usize];
    ["Offset of field: kvc_prefix_hit::known_tokens"][::core::mem::offset_of!(kvc_prefix_hit, known_tokens) - 24usize];
    ["Offset of field: kvc_prefix_hit::load_tokens"][::core::mem::offset_of!(kvc_prefix_hit, load_tokens) - 32usize];
    ["Offset of field: kvc_prefix_hit::load_ns"][::core::mem::offset_of!(kvc_prefix_hit, load_ns) - 40usize];
    ["Offset of field: kvc_prefix_hit::token_ns"][::core::mem::offset_of!(kvc_prefix_hit, token_ns) - 48usize];
    ["Offset of field: kvc_prefix_hit::num_tiers"][::core::mem::offset_of!(kvc_prefix_hit, num_tiers) - 56usize];
    ["Offset of field: kvc_prefix_hit::reserved"][::core::mem::offset_of!(kvc_prefix_hit, reserved) - 60usize];
    ["Offset of field: kvc_prefix_hit::tier_tokens"][::core::mem::offset_of!(kvc_prefix_hit, tier_tokens) - 64usize];
};
#[doc = " no tier stores the pages that this publish adds to the index"]
pub const KVC_PREFIX_KEEP_PRIVATE: kvc_prefix_options_flags = 1;
pub type kvc_prefix_options_flags = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_prefix_options {
    pub struct_size: u32,
    #[doc = " 0..100: prefixes of lower priority are evicted first. If several publishes share tokens, these\ntokens have the highest priority of all these publishes"]
    pub priority: i32,
    #[doc = " 0 = no session. Else a number of the caller's choice, under which kvc_prefix_drop_session can drop\nthe prefix"]
    pub session: u64,
    #[doc = " 0 = no limit. Else, in the unit of kvc_cache_set_time: the tokens expire this long after now.\nExpired tokens can still be found, but are evicted first"]
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
    #[doc = " tokens of the query that the index has now. These are not all tokens if the index is full of pages\nin use"]
    pub known_tokens: i64,
    #[doc = " pages of all groups that were not in the index before"]
    pub pages_added: i64,
    #[doc = " pages of the sequence that became free, because the index had other pages with the same tokens"]
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
#[doc = " The tokens whose page keys are computed, and all else that the keys depend on."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_page_keys_args {
    pub struct_size: u32,
    #[doc = " 0"]
    pub reserved: u32,
    #[doc = " [num_tokens]; nullable if num_tokens is 0. Any numbers are allowed"]
    pub tokens: *const i32,
    #[doc = " 0..2^30; a partial last page has no key"]
    pub num_tokens: i64,
    #[doc = " 1..2^20"]
    pub page_size: i64,
    #[doc = " position of tokens[0] in its sequence: a multiple of page_size, up to 2^30. 0 without a\nparent"]
    pub begin: i64,
    #[doc = " nullable: tokens[0] is the first token of its sequence. [32]: the key of the page that ends\nat begin. The parent's key depends on fingerprint and adapter, so the new keys do too"]
    pub parent: *const u8,
    #[doc = " [32]: a hash of weights, quantisation and tokenizer, which the engine computes; nullable\nwith a parent"]
    pub fingerprint: *const u8,
    #[doc = " [adapter_bytes]; nullable if adapter_bytes is 0 = no adapter"]
    pub adapter: *const u8,
    #[doc = " 0..2^20"]
    pub adapter_bytes: i64,
    #[doc = " [salt_bytes]; nullable if salt_bytes is 0 = no salt"]
    pub salt: *const u8,
    #[doc = " 0..2^20"]
    pub salt_bytes: i64,
    #[doc = " >= 0: the salt applies to the page that contains this position, and to all later pages"]
    pub salt_begin: i64,
    #[doc = " number of spans of tokens that stand for an image or other media; 0..2^30"]
    pub num_media: i64,
    #[doc = " [num_media]: position in the sequence of the first token of each span, ascending"]
    pub media_begins: *const i64,
    #[doc = " [num_media]: number of tokens of each span, > 0. The spans do not overlap"]
    pub media_tokens: *const i64,
    #[doc = " [num_media, 32]: a hash of the media of each span, and of all settings that change how the\nmodel encodes the media"]
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
#[doc = " no page can be found in any group or tier. While events tell of a page in a tier, there is a\nremoved event for each page of the pools instead"]
pub const KVC_EVENT_CLEARED: kvc_event_kind = 3;
#[doc = " ============================================================================================\n 14  Events: what the prefix index holds, told to others\n ============================================================================================\n A router sends a request to the engine that has most of its prompt in a prefix index. Events tell the router how the\n prefix index of each engine changes. There are three kinds: a whole page can now be found (stored), a page can no longer\n be found (removed), or no page can be found any more (cleared). A cache with events_capacity keeps the newest events in a\n ring buffer. If the buffer is full, a new event replaces the oldest one, and no call waits.\n\n Events are numbered from 0. A reader gives the number of the next event that it needs, and gets the range of numbers that\n the call returned:\n\n   kvc_events_args args;  kvc_events_args_init(&args);\n   args.events = events;  args.tokens = tokens;  args.capacity = 256;         // kvc_event[256], int32_t[256 * page_size]\n   kvc_events_range range;  kvc_events_range_init(&range);\n   for (;;) {\n     if (kvc_events_read(cache, &args, &range, &error)) return report(error.message);\n     if (range.epoch != epoch || range.begin != args.next) return start_again();   // another cache, or events were lost\n     for (int64_t i = 0; i < range.count; i++) apply(&events[i], tokens + i * page_size);\n     args.next = range.end;\n   }\n\n start_again drops all pages that the reader has recorded, and takes a snapshot (kvc_events_snapshot). Then it reads events\n from the snapshot's range.end on. A snapshot and all events after it give exactly the pages of the index, and the pages in\n tiers of which events tell.\n\n   Pages     Events name whole pages by their keys (section 13). A salt that is not 0 goes into a key as 8 bytes,\n             little-endian. Only messages name the adapter and the media of a page. Each group has its own events for a\n             page.\n             A recurrent group has events only for states at the end of a whole page.\n   Tiers     With kvc_cache_config.events_tier_pages, events also tell which pages the tiers of the cache have. A stored\n             event of a tier says that the cache has stored the page there, or that kvc_prefix_match or kvc_prefix_load has\n             found it there. A removed event says that the tier no longer has the page. Disk and host tiers report every\n             page that they lose. Other tiers may lose a page without an event, until a call looks for the page. If there\n             is no room for another page, the page that was stored or found least recently is told as removed\n             (docs/reference/events.md).\n   Bytes     Instead of records, a call can write one message in the format of vLLM's consumers: docs/reference/events.md.\n In a cache whose events_capacity is 0, every call of this section returns UNSUPPORTED."]
pub type kvc_event_kind = ::core::ffi::c_uint;
#[doc = " the stored page is not the first page of its sequence"]
pub const KVC_EVENT_HAS_PARENT: kvc_event_flags = 1;
#[doc = " the stored page has a salt that is not 0"]
pub const KVC_EVENT_SALTED: kvc_event_flags = 2;
pub type kvc_event_flags = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_event {
    #[doc = " number of the event in the epoch, from 0; in a snapshot 0"]
    pub number: u64,
    #[doc = " KVC_EVENT_*"]
    pub kind: i32,
    #[doc = " -1 = all groups"]
    pub group: i32,
    #[doc = " KVC_EVENT_HAS_PARENT, KVC_EVENT_SALTED"]
    pub flags: u32,
    #[doc = " where the page is: 0 = in the pools; i = in the tier that was added i-th, counted from 1"]
    pub tier: i32,
    #[doc = " stored: position of the page's first token in its sequence"]
    pub position: i64,
    #[doc = " stored: the session that published the page; 0 = none, or several, or (in a tier) unknown"]
    pub session: u64,
    #[doc = " stored, removed: key of the page"]
    pub key: [u8; 32usize],
    #[doc = " with KVC_EVENT_HAS_PARENT: key of the page before"]
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
    ["Offset of field: kvc_event::tier"][::core::mem::offset_of!(kvc_event, tier) - 20usize];
    ["Offset of field: kvc_event::position"][::core::mem::offset_of!(kvc_event, position) - 24usize];
    ["Offset of field: kvc_event::session"][::core::mem::offset_of!(kvc_event, session) - 32usize];
    ["Offset of field: kvc_event::key"][::core::mem::offset_of!(kvc_event, key) - 40usize];
    ["Offset of field: kvc_event::parent"][::core::mem::offset_of!(kvc_event, parent) - 72usize];
};
#[doc = " in the message, each event is an array, as in older consumers. Without this flag it is a\nmap"]
pub const KVC_EVENTS_ARRAYS: kvc_events_flags = 1;
#[doc = " in the message, a key is an integer: its low 64 bits. Without this flag it is 32 bytes"]
pub const KVC_EVENTS_SHORT_HASHES: kvc_events_flags = 2;
pub type kvc_events_flags = ::core::ffi::c_uint;
#[doc = " What a call returns: records in `events`, or one message in `bytes`, or only the range if both are NULL."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_events_args {
    pub struct_size: u32,
    #[doc = " KVC_EVENTS_*"]
    pub flags: u32,
    #[doc = " kvc_events_read: the number of the first event that the reader needs"]
    pub next: u64,
    #[doc = " nullable: no records. [capacity], filled. Not together with bytes"]
    pub events: *mut kvc_event,
    #[doc = " nullable: no tokens. [capacity, page_size], filled: row i has the tokens of events[i] if it\nis a stored page, else 0"]
    pub tokens: *mut i32,
    #[doc = " number of elements of events"]
    pub capacity: i64,
    #[doc = " nullable: no message. [capacity_bytes], filled: one message"]
    pub bytes: *mut u8,
    #[doc = " size of bytes"]
    pub capacity_bytes: i64,
    #[doc = " with bytes: timestamp of the message, in seconds"]
    pub timestamp: f64,
    #[doc = " with bytes: the data-parallel rank in the message; -1 = nil"]
    pub data_parallel_rank: i32,
    #[doc = " with events: sizeof(kvc_event)"]
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
    #[doc = " identifies this cache: a random number from the system, chosen when the cache is created, never 0"]
    pub epoch: u64,
    #[doc = " number of the first returned event. If it is above args->next, the events between the two are lost"]
    pub begin: u64,
    #[doc = " the number of the next event to read, after the returned events"]
    pub end: u64,
    #[doc = " number that the next event of the cache will have. If it is above `end`, there is more to read"]
    pub newest: u64,
    #[doc = " number of returned events or pages; without a buffer, the number of those that exist"]
    pub count: i64,
    #[doc = " number of written bytes; for a snapshot without a buffer, the size that the message needs"]
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
#[doc = " A callback that takes the next bytes of a saved sequence. It runs on the thread that called kvc_seq_save, while the\n library holds no lock.\n   user   kvc_save_args.write_user\n   data   borrowed; [bytes]\n Returns: 0 = success. Any other number = failure, and the error message has this number."]
pub type kvc_write_fn = ::core::option::Option<
    unsafe extern "C" fn(user: *mut ::core::ffi::c_void, data: *const ::core::ffi::c_void, bytes: i64) -> i32,
>;
#[doc = " A callback that gives the next bytes of a saved sequence. It runs on the thread that called kvc_seq_load, while the\n library holds no lock.\n   user   kvc_load_args.read_user\n   data   filled; [bytes]\n Returns: how many bytes it gave, 1..bytes. 0 = the end. Below 0 = failure, and the error message has this number."]
pub type kvc_read_fn = ::core::option::Option<
    unsafe extern "C" fn(user: *mut ::core::ffi::c_void, data: *mut ::core::ffi::c_void, bytes: i64) -> i64,
>;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_save_args {
    pub struct_size: u32,
    #[doc = " 0"]
    pub flags: u32,
    #[doc = " borrowed; nullable if write is given. A failed or interrupted save leaves no partial file of\nthis name: the bytes go to a new file in the same folder, which is synchronised with the disk\nand then renamed. In UTF-8, on Windows too"]
    pub path: *const ::core::ffi::c_char,
    #[doc = " nullable if path is given: receives the bytes in place of a file"]
    pub write: kvc_write_fn,
    #[doc = " the first argument of write"]
    pub write_user: *mut ::core::ffi::c_void,
    #[doc = " borrowed; nullable: not saved. [num_tokens]: the ids of the sequence's tokens"]
    pub tokens: *const i32,
    #[doc = " the length of the sequence; 0 without tokens"]
    pub num_tokens: i64,
    #[doc = " how many payload bytes one checksum covers. A load needs memory for one such section. A power of\ntwo, 4096..2^24; 0 = 2^20"]
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
    #[doc = " borrowed, in UTF-8; nullable if read is given"]
    pub path: *const ::core::ffi::c_char,
    #[doc = " nullable if path is given: gives the bytes in place of a file"]
    pub read: kvc_read_fn,
    #[doc = " the first argument of read"]
    pub read_user: *mut ::core::ffi::c_void,
    #[doc = " nullable if capacity is 0; [capacity], filled with the token ids. Undefined after a failure"]
    pub tokens: *mut i32,
    #[doc = " number of elements of tokens; 0 = the load returns no token ids"]
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
#[doc = " The functions of a tier that the engine implements. kvcache_tier.h defines the struct."]
#[repr(C)]
#[derive(Debug)]
pub struct kvc_tier {
    _unused: [u8; 0],
}
#[doc = " the data of an object is on the disk before the object can be found. After a loss of power the\nobject can be missing"]
pub const KVC_TIER_SYNC_DATA: kvc_tier_sync = 0;
#[doc = " the operating system decides when it writes an object. After a loss of power the object can be\nmissing, but its bytes are never wrong"]
pub const KVC_TIER_SYNC_NONE: kvc_tier_sync = 1;
#[doc = " as DATA, and the file name of the object is on the disk too. So a stored object survives a loss\nof power"]
pub const KVC_TIER_SYNC_FULL: kvc_tier_sync = 2;
#[doc = " What a disk tier does to keep a stored object through a loss of power."]
pub type kvc_tier_sync = ::core::ffi::c_uint;
#[doc = " the tier is memory of this process, of at most capacity_bytes. It keeps the pages that the pools\nevict"]
pub const KVC_TIER_HOST: kvc_tier_flag = 1;
#[doc = " with KVC_TIER_HOST, in a cache on a GPU: the memory is locked, and the GPU copies pages to and\nfrom it directly. kvc_cache_add_tier allocates all of it, which can take seconds, and\nkvc_cache_destroy frees it"]
pub const KVC_TIER_PINNED: kvc_tier_flag = 2;
#[doc = " disk: each thread of the tier reads one file at a time, in system calls that block. Without this\nflag, a thread reads several small objects at once by io_uring, where the kernel allows that"]
pub const KVC_TIER_BLOCKING: kvc_tier_flag = 4;
#[doc = " disk: if the kernel does not allow io_uring, kvc_cache_add_tier returns UNSUPPORTED with the\nreason. Not with KVC_TIER_BLOCKING"]
pub const KVC_TIER_IO_URING: kvc_tier_flag = 8;
pub type kvc_tier_flag = ::core::ffi::c_uint;
#[doc = " all pages"]
pub const KVC_TIER_STORE_PUBLISHED: kvc_tier_store = 0;
#[doc = " pages that were already in the index before the publish, because another request had\npublished them"]
pub const KVC_TIER_STORE_REUSED: kvc_tier_store = 1;
#[doc = " no pages: the tier is read only, and stores no suspended sequence"]
pub const KVC_TIER_STORE_NOTHING: kvc_tier_store = 2;
#[doc = " the pages that the pools will evict next, as soon as fewer than a quarter of a group's\npages, and fewer than 1024, are free. Pages that stay in the pools are not stored"]
pub const KVC_TIER_STORE_EVICTED: kvc_tier_store = 3;
#[doc = " Which published pages a tier stores."]
pub type kvc_tier_store = ::core::ffi::c_uint;
#[doc = " Settings of a tier. Give exactly one of directory, tier and KVC_TIER_HOST."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_tier_config {
    pub struct_size: u32,
    #[doc = " disk: KVC_TIER_SYNC_*"]
    pub sync: i32,
    #[doc = " nullable; disk: path of a folder, which is created if it does not exist. Several processes\nmay share the folder"]
    pub directory: *const ::core::ffi::c_char,
    #[doc = " nullable; adopted: a tier that the engine implements"]
    pub tier: *const kvc_tier,
    #[doc = " disk and host: the largest size of all objects. When it is exceeded, the least recently used\nobjects are removed. Disk: 0 = no limit. Host: at least 4096; memory is allocated only when\nobjects need it. KVC_TIER_PINNED: at least 65536"]
    pub capacity_bytes: i64,
    #[doc = " KVC_TIER_STORE_*"]
    pub store: i32,
    #[doc = " KVC_TIER_HOST, PINNED, BLOCKING, IO_URING, or 0"]
    pub flags: u32,
    #[doc = " >= 0: a publish of fewer tokens is not stored"]
    pub min_tokens: i64,
    #[doc = " nullable; borrowed: the name of the tier in messages of events, 1..32 printable ASCII\ncharacters, which neither the pools (\"CPU\" or \"GPU\") nor another tier has. NULL = \"STORAGE\",\nfor a host tier \"CPU\" if the cache is on a GPU, else \"HOST\"; with a number if this name is\ntaken"]
    pub medium: *const ::core::ffi::c_char,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_tier_config"][::core::mem::size_of::<kvc_tier_config>() - 56usize];
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
    ["Offset of field: kvc_tier_config::medium"][::core::mem::offset_of!(kvc_tier_config, medium) - 48usize];
};
#[doc = " Id of a job: a load, suspend or resume in the background. 0 = no job."]
pub type kvc_job = u64;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_prefix_load_options {
    pub struct_size: u32,
    #[doc = " of the loaded pages, as in kvc_prefix_options"]
    pub priority: i32,
    #[doc = " of the loaded pages, as in kvc_prefix_options"]
    pub session: u64,
    #[doc = " of the loaded pages, as in kvc_prefix_options"]
    pub time_to_live: i64,
    #[doc = " the time to compute one token, in nanoseconds, for the gate that is described above. 0 = as the\ncache has measured it. INT64_MAX = load in any case"]
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
    #[doc = " 1 = the job has ended, and its id is stale now"]
    pub done: i32,
    #[doc = " load, done: number of tokens of the query that were loaded and can be found now. Suspend and\nresume: the length of the sequence"]
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
#[doc = " calls in a forward wait until their layer is ready. Without the flag they return PENDING"]
pub const KVC_PENDING_WAIT: kvc_pending_flag = 1;
pub type kvc_pending_flag = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_pending_options {
    pub struct_size: u32,
    #[doc = " KVC_PENDING_WAIT or 0"]
    pub flags: u32,
    #[doc = " 0 = no limit. Else the job is cancelled if it has not ended this many nanoseconds after the call"]
    pub timeout_ns: i64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_pending_options"][::core::mem::size_of::<kvc_pending_options>() - 16usize];
    ["Alignment of kvc_pending_options"][::core::mem::align_of::<kvc_pending_options>() - 8usize];
    ["Offset of field: kvc_pending_options::struct_size"]
        [::core::mem::offset_of!(kvc_pending_options, struct_size) - 0usize];
    ["Offset of field: kvc_pending_options::flags"][::core::mem::offset_of!(kvc_pending_options, flags) - 4usize];
    ["Offset of field: kvc_pending_options::timeout_ns"]
        [::core::mem::offset_of!(kvc_pending_options, timeout_ns) - 8usize];
};
#[doc = " What a pending sequence waits for."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_pending_info {
    pub struct_size: u32,
    #[doc = " the layers [0, ready_layers) are ready; the number of layers if the sequence is not pending"]
    pub ready_layers: i32,
    #[doc = " the job that loads the prefix; 0 = the sequence is not pending, and the fields below are 0"]
    pub job: kvc_job,
    #[doc = " number of tokens of the sequence whose pages the job loads"]
    pub tokens: i64,
    #[doc = " number of pages of all groups that the job loads"]
    pub pages: i64,
    #[doc = " how many of these pages have all their layers in the pools"]
    pub pages_loaded: i64,
    #[doc = " 1 = the load cannot complete, so the sequence will become shorter"]
    pub failed: i32,
    #[doc = " 0"]
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_pending_info"][::core::mem::size_of::<kvc_pending_info>() - 48usize];
    ["Alignment of kvc_pending_info"][::core::mem::align_of::<kvc_pending_info>() - 8usize];
    ["Offset of field: kvc_pending_info::struct_size"][::core::mem::offset_of!(kvc_pending_info, struct_size) - 0usize];
    ["Offset of field: kvc_pending_info::ready_layers"]
        [::core::mem::offset_of!(kvc_pending_info, ready_layers) - 4usize];
    ["Offset of field: kvc_pending_info::job"][::core::mem::offset_of!(kvc_pending_info, job) - 8usize];
    ["Offset of field: kvc_pending_info::tokens"][::core::mem::offset_of!(kvc_pending_info, tokens) - 16usize];
    ["Offset of field: kvc_pending_info::pages"][::core::mem::offset_of!(kvc_pending_info, pages) - 24usize];
    ["Offset of field: kvc_pending_info::pages_loaded"]
        [::core::mem::offset_of!(kvc_pending_info, pages_loaded) - 32usize];
    ["Offset of field: kvc_pending_info::failed"][::core::mem::offset_of!(kvc_pending_info, failed) - 40usize];
    ["Offset of field: kvc_pending_info::reserved"][::core::mem::offset_of!(kvc_pending_info, reserved) - 44usize];
};
#[doc = " Traffic between the pools and all tiers since kvc_cache_create. A page counts once for each group."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_tier_traffic {
    pub struct_size: u32,
    pub num_tiers: i32,
    #[doc = " pages that are queued for a store, or are being stored. 0: there is nothing left to\nstore"]
    pub pages_waiting: i64,
    #[doc = " pages that a tier has stored"]
    pub pages_stored: i64,
    #[doc = " pages that were evicted before they were copied, or did not fit in the queue"]
    pub pages_dropped: i64,
    #[doc = " pages that a tier refused, or failed to store"]
    pub pages_not_stored: i64,
    #[doc = " pages of running loads and resumes"]
    pub pages_loading: i64,
    #[doc = " pages that were loaded"]
    pub pages_loaded: i64,
    #[doc = " pages that a tier no longer had, or whose object did not match"]
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
#[doc = " The functions that carry bytes to another cache. kvcache_transport.h defines the struct."]
#[repr(C)]
#[derive(Debug)]
pub struct kvc_transport {
    _unused: [u8; 0],
}
#[doc = " Id of a transfer. 0 = no transfer."]
pub type kvc_transfer = u64;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvc_receive_args {
    pub struct_size: u32,
    #[doc = " how long the other side may be silent, in milliseconds, 1..3600000; 0 = 30000. Both sides use\nit"]
    pub timeout_ms: i32,
    #[doc = " the length of the sequence when the transfer is done; >= 1"]
    pub num_tokens: i64,
    #[doc = " 0 = none. Else a sequence that has the first tokens, as from kvc_prefix_attach. Only the tokens\nafter these are sent, and the new sequence shares the whole pages of the prefix. The cache must\nhave no recurrent group"]
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
    #[doc = " 1 = the receiver has everything, and the id is stale now"]
    pub done: i32,
    #[doc = " how many tokens all layers have received or sent. Tokens of the prefix and tokens before a window\ncount too"]
    pub tokens: i64,
    #[doc = " bytes of rows and states that were sent or received so far"]
    pub bytes: i64,
    #[doc = " receiver, when done: the new sequence. Else 0"]
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
    pub prefix_attach_pending: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            job: kvc_job,
            options: *const kvc_pending_options,
            sequence: *mut kvc_seq,
            num_tokens: *mut i64,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
    pub seq_pending: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut kvc_cache,
            sequence: kvc_seq,
            info: *mut kvc_pending_info,
            error: *mut kvc_error,
        ) -> kvc_status,
    >,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvc_api"][::core::mem::size_of::<kvc_api>() - 728usize];
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
    ["Offset of field: kvc_api::prefix_attach_pending"]
        [::core::mem::offset_of!(kvc_api, prefix_attach_pending) - 712usize];
    ["Offset of field: kvc_api::seq_pending"][::core::mem::offset_of!(kvc_api, seq_pending) - 720usize];
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
impl Default for kvc_pending_options {
    fn default() -> Self {
        let mut value: Self = unsafe { ::core::mem::zeroed() };
        value.struct_size = ::core::mem::size_of::<Self>() as u32;
        value
    }
}
impl Default for kvc_pending_info {
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
