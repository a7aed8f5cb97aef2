//! What a module imports and exports, as far as linking it needs: a module that cannot be read has no
//! imports, and the Erlang side sees what becomes of it.

use wasmparser::{ExternalKind, GlobalType, Parser, Payload, TypeRef};

/// A module's border.
#[derive(Clone, Default)]
pub struct Shape {
    pub wasm: Vec<u8>,
    /// Names of modules that it imports from, one for each import.
    pub imports: Vec<String>,
    pub exports: Vec<Export>,
    /// How many types it defines.
    pub types: u32,
}

#[derive(Clone)]
pub struct Export {
    pub name: String,
    pub kind: ExportKind,
}

/// What can be asked for by a script; types are numbers of the module's own.
#[derive(Clone, Copy)]
pub enum ExportKind {
    Function(u32),
    Global(GlobalType),
}

/// The index spaces, as they fill up.
#[derive(Default)]
struct Spaces {
    functions: Vec<u32>,
    globals: Vec<GlobalType>,
}

impl Shape {
    /// The shape of a module.
    pub fn of(wasm: Vec<u8>) -> Self {
        let mut shape = Shape::default();
        if shape.read(&wasm).is_err() {
            shape = Shape::default();
        }
        Shape { wasm, ..shape }
    }

    fn read(&mut self, wasm: &[u8]) -> wasmparser::Result<()> {
        let mut spaces = Spaces::default();
        for payload in Parser::new(0).parse_all(wasm) {
            match payload? {
                Payload::TypeSection(groups) => {
                    for group in groups {
                        self.types += group?.types().len() as u32;
                    }
                }
                Payload::ImportSection(imports) => {
                    for import in imports.into_imports() {
                        self.import(import?, &mut spaces);
                    }
                }
                Payload::FunctionSection(types) => {
                    for ty in types {
                        spaces.functions.push(ty?);
                    }
                }
                Payload::GlobalSection(globals) => {
                    for global in globals {
                        spaces.globals.push(global?.ty);
                    }
                }
                Payload::ExportSection(exports) => {
                    for export in exports {
                        self.export(export?, &spaces);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn import(&mut self, import: wasmparser::Import<'_>, spaces: &mut Spaces) {
        match import.ty {
            TypeRef::Func(ty) | TypeRef::FuncExact(ty) => spaces.functions.push(ty),
            TypeRef::Global(ty) => spaces.globals.push(ty),
            _ => {}
        }
        self.imports.push(import.module.to_owned());
    }

    fn export(&mut self, export: wasmparser::Export<'_>, spaces: &Spaces) {
        let at = export.index as usize;
        let kind = match export.kind {
            ExternalKind::Func => spaces.functions.get(at).map(|ty| ExportKind::Function(*ty)),
            ExternalKind::Global => spaces.globals.get(at).map(|ty| ExportKind::Global(*ty)),
            _ => None,
        };
        if let Some(kind) = kind {
            self.exports.push(Export { name: export.name.to_owned(), kind });
        }
    }
}
