//! The main module of several that are linked: it imports all that they export, and exports it again
//! under names of their own, so that one instance answers for each of them.

use std::convert::Infallible;

use wasm_encoder::reencode::{Error, Reencode};
use wasm_encoder::{ExportKind as Kind, ExportSection, ImportSection, Module, TypeSection};
use wasmparser::{Parser, Payload};

use crate::shape::{ExportKind, Shape};

/// The name under which a driver exports what `member` exports.
pub fn name(member: usize, export: &str) -> String {
    format!("{member}:{export}")
}

/// Numbers of types that are moved up, since those of other modules stand before them.
struct Shift(u32);

impl Reencode for Shift {
    type Error = Infallible;

    fn type_index(&mut self, ty: u32) -> Result<u32, Error<Infallible>> {
        Ok(self.0 + ty)
    }
}

/// The driver of members: the name that each has among the links, its number, its shape.
pub fn driver(members: &[(String, usize, &Shape)]) -> Vec<u8> {
    let (mut types, mut imports, mut exports) =
        (TypeSection::new(), ImportSection::new(), ExportSection::new());
    let (mut functions, mut globals) = (0, 0);
    let mut shift = Shift(0);
    for (link, number, shape) in members {
        copy_types(&mut shift, &mut types, &shape.wasm);
        for export in &shape.exports {
            let outer = name(*number, &export.name);
            match export.kind {
                ExportKind::Function(ty) => {
                    let ty = wasm_encoder::EntityType::Function(shift.0 + ty);
                    imports.import(link, &export.name, ty);
                    exports.export(&outer, Kind::Func, functions);
                    functions += 1;
                }
                ExportKind::Global(ty) => {
                    let ty = shift.global_type(ty).expect("the module's own type");
                    imports.import(link, &export.name, ty);
                    exports.export(&outer, Kind::Global, globals);
                    globals += 1;
                }
            }
        }
        shift.0 += shape.types;
    }
    let mut module = Module::new();
    module.section(&types).section(&imports).section(&exports);
    module.finish()
}

fn copy_types(shift: &mut Shift, types: &mut TypeSection, wasm: &[u8]) {
    for payload in Parser::new(0).parse_all(wasm).flatten() {
        if let Payload::TypeSection(section) = payload {
            shift.parse_type_section(types, section).expect("types that were read before");
        }
    }
}
