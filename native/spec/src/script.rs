//! A script as a list of `{Line, Directive}`: every directive but `register`, which is resolved here.

use wast::core::ModuleKind;
use wast::lexer::{Lexer, TokenKind};
use wast::parser::{self, ParseBuffer};
use wast::token::{Id, Span};
use wast::{QuoteWat, QuoteWatTest, Wast, WastDirective, WastExecute, WastInvoke, Wat};

use crate::shape::Shape;
use crate::store::Store;
use crate::term::{Term, tagged};
use crate::value::{argument, expected};

/// The directives of a script.
///
/// # Errors
/// What the parser of scripts says about the text.
pub fn convert(text: &str) -> Result<Term, String> {
    let mut lexer = Lexer::new(text);
    lexer.allow_confusing_unicode(true);
    let buffer = ParseBuffer::new_with_lexer(lexer).map_err(|error| error.to_string())?;
    let wast = parser::parse::<Wast<'_>>(&buffer).map_err(|error| error.to_string())?;
    let mut script = Script { text, store: Store::default(), definitions: Vec::new() };
    let mut directives = Vec::new();
    let (mut line, mut at) = (1, 0);
    for directive in wast.directives {
        let offset = directive.span().offset();
        line += text[at..offset].matches('\n').count();
        at = offset;
        if let Some(term) = script.directive(directive) {
            directives.push(Term::Tuple(vec![line.into(), term]));
        }
    }
    Ok(Term::List(directives))
}

struct Script<'a> {
    text: &'a str,
    store: Store,
    /// Modules that are defined and not yet instantiated, by name.
    definitions: Vec<(Option<String>, Shape)>,
}

impl Script<'_> {
    fn directive(&mut self, directive: WastDirective<'_>) -> Option<Term> {
        Some(match directive {
            WastDirective::Module(mut module) => {
                let id = module.name().map(|id| id.name().to_owned());
                let (source, shape) = self.source(&mut module);
                self.module("module", id.as_deref(), source, shape, true)
            }
            WastDirective::ModuleDefinition(mut module) => {
                let id = module.name().map(|id| id.name().to_owned());
                let (source, shape) = self.binary(&mut module);
                self.definitions.push((id, shape));
                tagged("definition", [source])
            }
            WastDirective::ModuleInstance { instance, module, .. } => {
                let shape = self.definition(module);
                let source = Term::Binary(shape.wasm.clone());
                self.module("module", instance.map(|id| id.name()), source, shape, true)
            }
            WastDirective::Register { name, module, .. } => {
                self.store.register(name, module.map(|id| id.name()));
                return None;
            }
            WastDirective::AssertMalformed { module, message, .. }
            | WastDirective::AssertMalformedCustom { module, message, .. } => {
                self.refused("malformed", module, message)
            }
            WastDirective::AssertInvalid { module, message, .. }
            | WastDirective::AssertInvalidCustom { module, message, .. } => {
                self.refused("invalid", module, message)
            }
            WastDirective::AssertUnlinkable { module, message, .. } => {
                tagged("unlinkable", [self.failing(module), message.into()])
            }
            WastDirective::Invoke(invoke) => tagged("invoke", [self.invoke(&invoke)]),
            WastDirective::AssertReturn { exec, results, .. } => {
                let results = results.iter().map(expected).collect();
                tagged("return", [self.action(exec), Term::List(results)])
            }
            WastDirective::AssertTrap { exec, message, .. } => {
                tagged("trap", [self.action(exec), message.into()])
            }
            WastDirective::AssertExhaustion { call, .. } => {
                tagged("exhaustion", [self.invoke(&call)])
            }
            WastDirective::AssertException { exec, .. } => tagged("exception", [self.action(exec)]),
            other => panic!("a directive that no script had before: {other:?}"),
        })
    }

    fn module(
        &mut self,
        tag: &'static str,
        id: Option<&str>,
        source: Term,
        shape: Shape,
        stays: bool,
    ) -> Term {
        let (number, setup) = self.store.instantiate(id, shape, stays);
        tagged(tag, [number.into(), source, setup])
    }

    /// A module that must not come to life.
    fn failing(&mut self, module: Wat<'_>) -> Term {
        let (source, shape) = self.source(&mut QuoteWat::Wat(module));
        self.module("module", None, source, shape, false)
    }

    fn refused(&self, tag: &'static str, mut module: QuoteWat<'_>, message: &str) -> Term {
        tagged(tag, [self.source(&mut module).0, message.into()])
    }

    fn definition(&self, id: Option<Id<'_>>) -> Shape {
        let found = match id {
            Some(id) => {
                self.definitions.iter().rev().find(|(name, _)| name.as_deref() == Some(id.name()))
            }
            None => self.definitions.last(),
        };
        found.map(|(_, shape)| shape.clone()).unwrap_or_default()
    }

    fn action(&mut self, exec: WastExecute<'_>) -> Term {
        match exec {
            WastExecute::Invoke(invoke) => self.invoke(&invoke),
            WastExecute::Wat(module) => self.failing(module),
            WastExecute::Get { module, global, .. } => {
                tagged("get", [self.target(module), global.into()])
            }
        }
    }

    fn invoke(&self, invoke: &WastInvoke<'_>) -> Term {
        let args = Term::List(invoke.args.iter().map(argument).collect());
        tagged("invoke", [self.target(invoke.module), invoke.name.into(), args])
    }

    fn target(&self, id: Option<Id<'_>>) -> Term {
        self.store.find(id.map(|id| id.name())).map_or(Term::Atom("none"), Term::from)
    }

    /// The module as the script has it, text as text, and as far as it can be read, its shape.
    fn source(&self, module: &mut QuoteWat<'_>) -> (Term, Shape) {
        let text = match module {
            QuoteWat::Wat(Wat::Module(m)) if matches!(m.kind, ModuleKind::Text(_)) => {
                self.inline(m.span)
            }
            QuoteWat::QuoteModule(..) => match module.to_test() {
                Ok(QuoteWatTest::Text(text)) => Some(text),
                _ => None,
            },
            _ => None,
        };
        let Some(text) = text else { return self.binary(module) };
        let shape = module.encode().map(Shape::of).unwrap_or_default();
        (tagged("wat", [Term::Binary(text)]), shape)
    }

    fn binary(&self, module: &mut QuoteWat<'_>) -> (Term, Shape) {
        let shape = Shape::of(module.encode().expect("a module in the binary format"));
        (Term::Binary(shape.wasm.clone()), shape)
    }

    /// The text of a module in the script, from its parenthesis to the one that closes it.
    fn inline(&self, keyword: Span) -> Option<Vec<u8>> {
        let begin = self.text[..keyword.offset()].rfind('(')?;
        let mut lexer = Lexer::new(self.text);
        lexer.allow_confusing_unicode(true);
        let mut open = 0;
        for token in lexer.iter(begin) {
            let token = token.ok()?;
            match token.kind {
                TokenKind::LParen => open += 1,
                TokenKind::RParen => open -= 1,
                _ => {}
            }
            if open == 0 {
                let end = token.offset + token.len as usize;
                return Some(self.text.as_bytes()[begin..end].to_vec());
            }
        }
        None
    }
}
