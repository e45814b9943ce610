//! From kinds to Rust types.

/// Runs an expression with a type name standing for the type of a kind, of a class of kinds.
macro_rules! dispatch {
    ($ty:ident: floats, $kind:expr => $body:expr) => {
        $crate::random::dispatch::dispatch!(@ $ty, $kind => $body; F32 f32, F16 f16, Bf16 bf16, F64 f64)
    };
    ($ty:ident: ints, $kind:expr => $body:expr) => {
        $crate::random::dispatch::dispatch!(@ $ty, $kind => $body; I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64)
    };
    ($ty:ident: atomic, $kind:expr => $body:expr) => {
        $crate::random::dispatch::dispatch!(@ $ty, $kind => $body; I32 i32, I64 i64, U32 u32, U64 u64)
    };
    ($ty:ident: signed_ints, $kind:expr => $body:expr) => {
        $crate::random::dispatch::dispatch!(@ $ty, $kind => $body; I8 i8, I16 i16, I32 i32, I64 i64)
    };
    ($ty:ident: signed, $kind:expr => $body:expr) => {
        $crate::random::dispatch::dispatch!(@ $ty, $kind => $body; F32 f32, F16 f16, Bf16 bf16, F64 f64, I8 i8, I16 i16, I32 i32, I64 i64)
    };
    ($ty:ident: numbers, $kind:expr => $body:expr) => {
        $crate::random::dispatch::dispatch!(@ $ty, $kind => $body; F32 f32, F16 f16, Bf16 bf16, F64 f64,
            I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64)
    };
    ($ty:ident: bits, $kind:expr => $body:expr) => {
        $crate::random::dispatch::dispatch!(@ $ty, $kind => $body; I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64, Bool bool)
    };
    ($ty:ident: comparable, $kind:expr => $body:expr) => {
        $crate::random::dispatch::dispatch!(@ $ty, $kind => $body; F32 f32, F16 f16, Bf16 bf16, F64 f64,
            I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64, Bool bool)
    };
    ($ty:ident: arrays, $kind:expr => $body:expr) => {
        $crate::random::dispatch::dispatch!(@ $ty, $kind => $body; F32 f32, F16 f16, Bf16 bf16, F64 f64,
            I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64, Bool bool,
            Tf32 tf32, E4m3 f8e4m3fn, E5m2 f8e5m2, E8m0 f8e8m0fnu)
    };
    ($ty:ident: all, $kind:expr => $body:expr) => {
        $crate::random::dispatch::dispatch!(@ $ty, $kind => $body; F32 f32, F16 f16, Bf16 bf16, F64 f64,
            I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64, Bool bool,
            Tf32 tf32, E4m3 f8e4m3fn, E5m2 f8e5m2, E8m0 f8e8m0fnu, F4 f4e2m1fn)
    };
    ($ty:ident: packed, $kind:expr => $body:expr) => {
        $crate::random::dispatch::dispatch!(@ $ty, $kind => $body; F32 f32, F16 f16, Bf16 bf16, F64 f64,
            I16 i16, I32 i32, I64 i64, U16 u16, U32 u32, U64 u64, Bool bool, F4 f4e2m1fn)
    };
    ($ty:ident: packed_bits, $kind:expr => $body:expr) => {
        $crate::random::dispatch::dispatch!(@ $ty, $kind => $body; I16 i16, I32 i32, I64 i64, U16 u16, U32 u32, U64 u64, Bool bool)
    };
    ($ty:ident: byte, $kind:expr => $body:expr) => {
        $crate::random::dispatch::dispatch!(@ $ty, $kind => $body; I8 i8, U8 u8)
    };
    ($ty:ident: wide_float, $kind:expr => $body:expr) => {
        $crate::random::dispatch::dispatch!(@ $ty, $kind => $body; F32 f32, F64 f64)
    };
    ($ty:ident: whole_factors, $kind:expr => $body:expr) => {
        $crate::random::dispatch::dispatch!(@ $ty, $kind => $body; F32 f32, F16 f16, Bf16 bf16, F64 f64, Tf32 tf32, E4m3 f8e4m3fn, E5m2 f8e5m2)
    };
    ($ty:ident: $only:ident, $kind:expr => $body:expr) => {{
        #[allow(dead_code)]
        type $ty = $only;
        $body
    }};
    (@ $ty:ident, $kind:expr => $body:expr; $($variant:ident $name:ident),+) => {
        match $kind {
            $($crate::random::kind::Kind::$variant => {
                #[allow(dead_code)]
                type $ty = $name;
                $body
            })+
            #[allow(unreachable_patterns)]
            other => unreachable!("programs are well-typed, this is {other:?}"),
        }
    };
}
pub(crate) use dispatch;
