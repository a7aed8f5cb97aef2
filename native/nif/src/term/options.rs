//! Options: complete, checked maps from `wasmtime_options.erl` become typed options, and compile
//! options become a map again.

use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use rustler::{
    Atom, Binary, Encoder, Env, Error, LocalPid, MapIterator, NifResult, ResourceArc, Term,
};
use wasmtime_beam::inject::point;
use wasmtime_beam::links::Link;
use wasmtime_beam::mac::Key;
use wasmtime_beam::options::{
    Allocator, CallOptions, Check, Clocks, CompileOptions, Dir, InstanceOptions, Limits, OptLevel,
    Output, PoolOptions, Proposal, Runner, Stdin, WasiOptions,
};

use super::error::atom;
use super::map::{from_pairs, get};
use crate::atoms;
use crate::resource::Module;

/// Compile options.
pub fn compile(map: Term<'_>) -> NifResult<CompileOptions> {
    point("options");
    let level: Atom = get(map, atoms::opt_level())?;
    let opt_level = LEVELS.iter().find(|(name, _)| name() == level).ok_or(Error::BadArg)?.1;
    Ok(CompileOptions {
        fuel: get(map, atoms::fuel())?,
        opt_level,
        proposals: proposals(get(map, atoms::proposals())?)?,
        allocator: allocator(map)?,
    })
}

/// Atoms are made at run time, so that a table holds their makers.
type Level = (fn() -> Atom, OptLevel);

const LEVELS: &[Level] = &[
    (atoms::none, OptLevel::None),
    (atoms::speed, OptLevel::Speed),
    (atoms::speed_and_size, OptLevel::SpeedAndSize),
];

fn proposals(map: Term<'_>) -> NifResult<Vec<(Proposal, bool)>> {
    let mut chosen = Vec::new();
    for (name, enable) in MapIterator::new(map).ok_or(Error::BadArg)? {
        let name = name.atom_to_string()?;
        let proposal = Proposal::ALL.iter().find(|known| known.as_str() == name);
        chosen.push((*proposal.ok_or(Error::BadArg)?, enable.decode()?));
    }
    chosen.sort_unstable();
    Ok(chosen)
}

fn allocator(map: Term<'_>) -> NifResult<Allocator> {
    if get::<Atom>(map, atoms::allocator())? != atoms::pooling() {
        return Ok(Allocator::OnDemand);
    }
    let pool: Term<'_> = get(map, atoms::pooling())?;
    Ok(Allocator::Pooling(PoolOptions {
        instances: get(pool, atoms::instances())?,
        max_memory: get(pool, atoms::max_memory())?,
        keep_resident: get(pool, atoms::keep_resident())?,
        core_instances: get(pool, atoms::core_instances())?,
        tables: get(pool, atoms::tables())?,
        memories: get(pool, atoms::memories())?,
        verify: get(pool, atoms::verify())?,
    }))
}

/// The map of compile options.
pub fn encode_compile<'a>(env: Env<'a>, options: &CompileOptions) -> Term<'a> {
    let level = LEVELS.iter().find(|(_, level)| *level == options.opt_level);
    let level = level.map_or_else(atoms::speed, |(name, _)| name());
    let chosen = options.proposals.iter();
    let chosen: Vec<_> =
        chosen.map(|(p, enable)| (atom(env, p.as_str()), enable.encode(env))).collect();
    let mut pairs = vec![
        (atoms::fuel().encode(env), options.fuel.encode(env)),
        (atoms::opt_level().encode(env), level.encode(env)),
        (atoms::proposals().encode(env), from_pairs(env, &chosen)),
    ];
    match &options.allocator {
        Allocator::OnDemand => {
            pairs.push((atoms::allocator().encode(env), atoms::on_demand().encode(env)));
        }
        Allocator::Pooling(pool) => {
            pairs.push((atoms::allocator().encode(env), atoms::pooling().encode(env)));
            pairs.push((atoms::pooling().encode(env), encode_pool(env, pool)));
        }
    }
    from_pairs(env, &pairs)
}

fn encode_pool<'a>(env: Env<'a>, pool: &PoolOptions) -> Term<'a> {
    from_pairs(
        env,
        &[
            (atoms::instances().encode(env), pool.instances.encode(env)),
            (atoms::max_memory().encode(env), pool.max_memory.encode(env)),
            (atoms::keep_resident().encode(env), pool.keep_resident.encode(env)),
            (atoms::core_instances().encode(env), pool.core_instances.encode(env)),
            (atoms::tables().encode(env), pool.tables.encode(env)),
            (atoms::memories().encode(env), pool.memories.encode(env)),
            (atoms::verify().encode(env), pool.verify.encode(env)),
        ],
    )
}

/// How much of an artifact is checked.
pub fn check(term: Atom) -> NifResult<Check> {
    match term {
        t if t == atoms::metadata() => Ok(Check::Metadata),
        t if t == atoms::full() => Ok(Check::Full),
        _ => Err(Error::BadArg),
    }
}

/// A secret, or `undefined`.
pub fn key(term: Term<'_>) -> NifResult<Option<Key>> {
    if is(term, atoms::undefined()) {
        return Ok(None);
    }
    term.decode::<Binary<'_>>().map(|secret| Some(Key::new(&secret)))
}

/// The processes that instantiate options name; without one, the calling process is meant.
#[derive(Clone, Copy)]
pub struct Processes {
    /// Serves host calls.
    pub host: Option<LocalPid>,
    /// Gets what is streamed out.
    pub stream: Option<LocalPid>,
}

/// Instantiate options.
pub fn instance(map: Term<'_>) -> NifResult<(InstanceOptions, Processes)> {
    point("options");
    let wasi: Term<'_> = get(map, atoms::wasi())?;
    let options = InstanceOptions {
        imports: get(map, atoms::imports())?,
        wasi: if is(wasi, atoms::undefined()) { None } else { Some(self::wasi(wasi)?) },
        limits: Limits {
            memory: limit(map, atoms::memory_limit())?,
            total_memory: limit(map, atoms::total_memory_limit())?,
            tables: limit(map, atoms::max_tables())?,
            table_elements: limit(map, atoms::max_table_elements())?,
            instances: limit(map, atoms::max_instances())?,
        },
        host_timeout: limit(map, atoms::host_timeout())?.map(Duration::from_millis),
        runner: runner(get(map, atoms::runner())?)?,
        inbox_limit: get(map, atoms::inbox_limit())?,
    };
    let processes =
        Processes { host: process(map, atoms::host())?, stream: process(map, atoms::stream())? };
    Ok((options, processes))
}

fn process(map: Term<'_>, key: Atom) -> NifResult<Option<LocalPid>> {
    let term: Term<'_> = get(map, key)?;
    if is(term, atoms::undefined()) { Ok(None) } else { term.decode().map(Some) }
}

/// The modules that are made before the instance's own, by the names that they serve.
pub fn links(map: Term<'_>) -> NifResult<Vec<Link>> {
    let links: Vec<(String, ResourceArc<Module>)> = get(map, atoms::links())?;
    Ok(links.into_iter().map(|(name, m)| Link { name, module: m.get().clone() }).collect())
}

fn runner(word: Atom) -> NifResult<Runner> {
    match word {
        w if w == atoms::thread() => Ok(Runner::Thread),
        w if w == atoms::scheduler() => Ok(Runner::Scheduler),
        _ => Err(Error::BadArg),
    }
}

/// Call options.
pub fn call(map: Term<'_>) -> NifResult<CallOptions> {
    point("options");
    let fuel: Term<'_> = get(map, atoms::fuel())?;
    Ok(CallOptions {
        timeout: limit(map, atoms::timeout())?.map(Duration::from_millis),
        fuel: if is(fuel, atoms::undefined()) { None } else { Some(fuel.decode()?) },
    })
}

/// A time, or `infinity`.
pub fn milliseconds(term: Term<'_>) -> NifResult<Option<Duration>> {
    if is(term, atoms::infinity()) {
        Ok(None)
    } else {
        Ok(Some(Duration::from_millis(term.decode()?)))
    }
}

/// A number, or `infinity`.
fn limit(map: Term<'_>, key: Atom) -> NifResult<Option<u64>> {
    let term: Term<'_> = get(map, key)?;
    if is(term, atoms::infinity()) { Ok(None) } else { term.decode().map(Some) }
}

/// Atoms are words, so that the same atom is the same word.
fn is(term: Term<'_>, atom: Atom) -> bool {
    term.as_c_arg() == atom.as_c_arg()
}

fn wasi(map: Term<'_>) -> NifResult<WasiOptions> {
    let dirs: Vec<(String, Binary<'_>, Atom)> = get(map, atoms::dirs())?;
    let monotonic = get::<Atom>(map, atoms::clocks())? == atoms::monotonic();
    Ok(WasiOptions {
        args: get(map, atoms::args())?,
        env: get(map, atoms::env())?,
        dirs: dirs
            .into_iter()
            .map(|(guest, host, access)| Dir {
                guest,
                host: path(host),
                write: access == atoms::write(),
            })
            .collect(),
        stdin: stdin(get(map, atoms::stdin())?)?,
        stdout: output(get(map, atoms::stdout())?)?,
        stderr: output(get(map, atoms::stderr())?)?,
        output_limit: get(map, atoms::output_limit())?,
        clocks: if monotonic { Clocks::Monotonic } else { Clocks::All },
    })
}

/// A path is bytes on Unix.
pub fn path(bytes: Binary<'_>) -> PathBuf {
    std::ffi::OsString::from_vec(bytes.as_slice().to_vec()).into()
}

fn stdin(term: Term<'_>) -> NifResult<Stdin> {
    if is(term, atoms::none()) {
        return Ok(Stdin::None);
    }
    if is(term, atoms::inherit()) {
        return Ok(Stdin::Inherit);
    }
    if is(term, atoms::stream()) {
        return Ok(Stdin::Stream);
    }
    let (tag, bytes): (Atom, Binary<'_>) = term.decode()?;
    match tag {
        t if t == atoms::file() => Ok(Stdin::File(path(bytes))),
        t if t == atoms::binary() => Ok(Stdin::Binary(bytes.as_slice().into())),
        _ => Err(Error::BadArg),
    }
}

fn output(term: Term<'_>) -> NifResult<Output> {
    if let Ok(word) = term.decode::<Atom>() {
        return match word {
            w if w == atoms::none() => Ok(Output::None),
            w if w == atoms::inherit() => Ok(Output::Inherit),
            w if w == atoms::capture() => Ok(Output::Capture),
            w if w == atoms::stream() => Ok(Output::Stream),
            _ => Err(Error::BadArg),
        };
    }
    let (tag, bytes): (Atom, Binary<'_>) = term.decode()?;
    if tag == atoms::file() { Ok(Output::File(path(bytes))) } else { Err(Error::BadArg) }
}
