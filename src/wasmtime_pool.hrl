%% What a request must know of its pool. It lives in a persistent term, so that requests read it
%% without a copy and without a message; only the pool's server replaces it.
-record(pool, {
    server :: pid(),
    %% As users and events see it: the registered name, or the server.
    name :: term(),
    size :: pos_integer(),
    max_queue :: non_neg_integer(),
    queue_timeout :: timeout(),
    timeout :: timeout(),
    instance :: map(),
    template :: wasmtime:template(),
    %% Places and their holders (see wasmtime_pool_ticket).
    words :: atomics:atomics_ref(),
    %% {Id, Holder, Instance | none} of each request that has or wants a place.
    table :: ets:table(),
    stats :: counters:counters_ref(),
    telemetry :: none | fun(([atom()], map(), map()) -> term())
}).

%% Where the pool of a server is found.
-define(POOL(Server), {wasmtime_pool, Server}).
