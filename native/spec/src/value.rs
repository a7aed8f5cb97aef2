//! Arguments and expected results, bit by bit. Arguments are values of the Erlang API, but for what
//! an instance must make first: `{extern, N}` and `{host, N}`.

use wast::core::{NanPattern, V128Pattern, WastArgCore, WastRetCore};
use wast::token::{F32, F64};
use wast::{WastArg, WastRet};

use crate::term::{Term, tagged};

/// What a function is given.
pub fn argument(arg: &WastArg<'_>) -> Term {
    match arg {
        WastArg::Core(WastArgCore::I32(v)) => Term::Integer((*v).into()),
        WastArg::Core(WastArgCore::I64(v)) => Term::Integer((*v).into()),
        WastArg::Core(WastArgCore::F32(v)) => tagged("f32", [Term::Integer(v.bits.into())]),
        WastArg::Core(WastArgCore::F64(v)) => tagged("f64", [Term::Integer(v.bits.into())]),
        WastArg::Core(WastArgCore::V128(v)) => Term::Binary(v.to_le_bytes().to_vec()),
        WastArg::Core(WastArgCore::RefNull(_)) => Term::Atom("null"),
        WastArg::Core(WastArgCore::RefExtern(v)) => tagged("extern", [Term::Integer((*v).into())]),
        WastArg::Core(WastArgCore::RefHost(v)) => tagged("host", [Term::Integer((*v).into())]),
        other => panic!("an argument that no script had before: {other:?}"),
    }
}

/// What a result must match.
pub fn expected(ret: &WastRet<'_>) -> Term {
    match ret {
        WastRet::Core(core) => pattern(core),
        other => panic!("a result that no script had before: {other:?}"),
    }
}

fn pattern(ret: &WastRetCore<'_>) -> Term {
    match ret {
        WastRetCore::I32(v) => tagged("i32", [Term::Integer((*v).into())]),
        WastRetCore::I64(v) => tagged("i64", [Term::Integer((*v).into())]),
        WastRetCore::F32(v) => tagged("f32", [f32_pattern(v)]),
        WastRetCore::F64(v) => tagged("f64", [f64_pattern(v)]),
        WastRetCore::V128(v) => v128(v),
        WastRetCore::RefNull(_) => Term::Atom("null"),
        WastRetCore::RefExtern(None) => Term::Atom("extern"),
        WastRetCore::RefExtern(Some(v)) => tagged("extern", [Term::Integer((*v).into())]),
        WastRetCore::RefHost(v) => tagged("host", [Term::Integer((*v).into())]),
        WastRetCore::RefFunc(_) => Term::Atom("func"),
        WastRetCore::RefAny => Term::Atom("any"),
        WastRetCore::RefEq => Term::Atom("eq"),
        WastRetCore::RefArray => Term::Atom("array"),
        WastRetCore::RefStruct => Term::Atom("struct"),
        WastRetCore::RefI31 | WastRetCore::RefI31Shared => Term::Atom("i31"),
        WastRetCore::Either(any) => {
            tagged("either", [Term::List(any.iter().map(pattern).collect())])
        }
    }
}

/// Bytes, or the patterns of the lanes of floats.
fn v128(v: &V128Pattern) -> Term {
    let bytes: Vec<u8> = match v {
        V128Pattern::I8x16(lanes) => lanes.iter().flat_map(|v| v.to_le_bytes()).collect(),
        V128Pattern::I16x8(lanes) => lanes.iter().flat_map(|v| v.to_le_bytes()).collect(),
        V128Pattern::I32x4(lanes) => lanes.iter().flat_map(|v| v.to_le_bytes()).collect(),
        V128Pattern::I64x2(lanes) => lanes.iter().flat_map(|v| v.to_le_bytes()).collect(),
        V128Pattern::F32x4(lanes) => {
            return tagged("f32x4", [Term::List(lanes.iter().map(f32_pattern).collect())]);
        }
        V128Pattern::F64x2(lanes) => {
            return tagged("f64x2", [Term::List(lanes.iter().map(f64_pattern).collect())]);
        }
    };
    tagged("v128", [Term::Binary(bytes)])
}

fn f32_pattern(pattern: &NanPattern<F32>) -> Term {
    nan_or(pattern, |v| v.bits.into())
}

fn f64_pattern(pattern: &NanPattern<F64>) -> Term {
    nan_or(pattern, |v| v.bits.into())
}

fn nan_or<T>(pattern: &NanPattern<T>, bits: impl Fn(&T) -> i128) -> Term {
    match pattern {
        NanPattern::CanonicalNan => Term::Atom("canonical"),
        NanPattern::ArithmeticNan => Term::Atom("arithmetic"),
        NanPattern::Value(v) => Term::Integer(bits(v)),
    }
}
