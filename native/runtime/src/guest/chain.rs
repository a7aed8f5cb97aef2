//! Makes the modules of a chain in one store, in order; and what differs for a guest of one.
//! Rule: each takes its own memories, in the first poll of its own instantiation.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use wasmtime::Instance;

use super::fit::Needs;
use super::poll::{Guest, unmapped};
use super::store::StoreCell;
use crate::error::{Error, Result};
use crate::linker::Linked;
use crate::links::{Chain, Part};
use crate::memory::{Lease, Permit, Share};
use crate::module::Module;
use crate::trap;

impl Guest {
    /// True when instantiation runs guest code: it may ask for the host, and take any time.
    pub fn has_start(&self) -> bool {
        match &*self.linked {
            Linked::Alone(_) => self.module.facts().has_start,
            Linked::Chain(chain) => chain.has_start(),
        }
    }

    /// True when the end of this guest may be the end of a module.
    pub fn holds_last_module(&self) -> bool {
        match &*self.linked {
            Linked::Alone(_) => self.module.is_last(),
            Linked::Chain(chain) => chain.holds_last(),
        }
    }
}

/// Memories for one instance, or for each module of a chain; a chain's place in the pool too.
pub(super) type Places = (Option<Lease>, Vec<Share>, Option<Permit>);

/// `None` when more than `clears` bytes of other modules are in the way.
pub(super) fn places(module: &Module, linked: &Linked, clears: usize) -> Result<Option<Places>> {
    Ok(match linked {
        Linked::Alone(_) => module.lease(clears)?.map(|lease| (Some(lease), Vec::new(), None)),
        Linked::Chain(chain) => {
            chain.lease(clears)?.map(|(shares, permit)| (None, shares, Some(permit)))
        }
    })
}

/// What must be within the limits before anything is made.
pub(crate) fn needs<'a>(module: &'a Module, linked: &'a Linked) -> Needs<'a> {
    let most = module.engine().pool().most();
    match linked {
        Linked::Alone(_) => {
            Needs { memories: module.plans(), tables: module.tables(), modules: 1, most }
        }
        Linked::Chain(chain) => {
            let (memories, tables) = (chain.plans(), chain.tables());
            Needs { memories, tables, modules: chain.parts().len(), most }
        }
    }
}

/// The instance of the main module, after those of its links.
pub(super) async fn instantiate(cell: &mut StoreCell, chain: &Chain) -> Result<Instance> {
    let shares = std::mem::take(&mut cell.shares);
    let mut made = Vec::with_capacity(shares.len());
    for (part, share) in chain.parts().iter().zip(shares) {
        let instance = make(cell, chain, part, share, &made).await?;
        made.push(instance);
    }
    let main = made.pop().filter(|_| made.len() + 1 == chain.parts().len());
    main.ok_or_else(|| Error::internal("a chain came without its memories"))
}

async fn make(
    cell: &mut StoreCell,
    chain: &Chain,
    part: &Part,
    share: Share,
    made: &[Instance],
) -> Result<Instance> {
    // What a start section of an earlier part was refused is not why this one fails.
    cell.store.data_mut().limiter.take_hit();
    let imports = part.imports(&mut cell.store, chain, made)?;
    let work = Instance::new_async(&mut cell.store, part.module(), &imports);
    let made = offered(share, work).await?;
    made.map_err(|error| part.refused(&error).unwrap_or_else(|| trap::from_wasmtime(&error)))
}

/// Runs an instantiation with the memories of its module offered in the first poll: it asks for them
/// before anything of the guest runs.
async fn offered<T>(
    share: Share,
    work: impl Future<Output = wasmtime::Result<T>>,
) -> Result<wasmtime::Result<T>> {
    let (mut work, mut share) = (pin!(work), Some(share));
    poll_fn(|cx| {
        let Some(share) = share.take() else { return work.as_mut().poll(cx).map(Ok) };
        match share.offer(|| work.as_mut().poll(cx)) {
            (Poll::Ready(Ok(_)) | Poll::Pending, unclaimed) if unclaimed > 0 => {
                Poll::Ready(Err(unmapped()))
            }
            (polled, _) => polled.map(Ok),
        }
    })
    .await
}
