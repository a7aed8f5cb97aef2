%% The public face of a pool: each function checks what it was given and hands it on.
%% Rule: a request runs in the process that makes it; the pool's process only lines up those that
%% must wait (see wasmtime_pool_run and wasmtime_pool_server).

%% @doc A supervised pool of a module: a fresh instance for every request, a bounded number at a
%% time, a bounded queue before it.
%%
%% A request runs in the process that makes it. As long as a place is free it sends no message: it
%% takes the place, makes an instance, works with it, destroys it and gives the place back. Those
%% that find no place wait in the order of their coming. A process that dies, while it waits or while
%% it runs, gives its place back and its instance is destroyed. See docs/pool.md.
%%
%% A pool is named by what it was registered as (an atom, `{global, Term}', `{via, Module, Term}')
%% or by its process, on this node. A first argument that cannot be a pool is a `badarg' exception;
%% a pool that does not run answers class `pool', kind `closed'.
-module(wasmtime_pool).

-include("wasmtime_pool.hrl").
-include("wasmtime_text.hrl").

-export([child_spec/1, start_link/1, stop/1, stop/2]).
-export([run/2, run/3, request/3, request/4]).
-export([stats/1, drain/1, drain/2, swap/2, swap/3]).
-export_type([pool/0, options/0, request_options/0, stats/0, summary/0]).

-type pool() :: pid() | atom() | {local, atom()} | {global, term()} | {via, module(), term()}.
-type options() :: wasmtime_pool_options:pool().
-type request_options() :: wasmtime_pool_options:request().
-type summary() :: wasmtime_pool_stats:summary().
-type stats() :: #{state := open | closed | ended,
                   size | in_flight | waiting | done | failed | overloaded := non_neg_integer(),
                   latency | queue := summary()}.

%% Beyond its drain, in ms, that a supervisor gives a pool to end.
-define(GRACE, 1_000).

%% ---- life -----------------------------------------------------------------------------------

%% @doc A child specification for a supervisor; its id is the pool's name. `{wasmtime_pool, Opts}'
%% does the same among the children of an Elixir supervisor. Options as {@link start_link/1}.
-spec child_spec(options() | [{atom(), term()}]) -> supervisor:child_spec().
child_spec(Opts) ->
    #{id => wasmtime_pool_options:spec_id(?MODULE, Opts),
      start => {?MODULE, start_link, [Opts]},
      restart => permanent,
      shutdown => shutdown(Opts),
      type => worker,
      modules => [?MODULE]}.

shutdown(Opts) ->
    case wasmtime_pool_options:pool(Opts) of
        {ok, #{drain_timeout := Ms}} when is_integer(Ms) -> wasmtime_options:later(Ms, ?GRACE);
        {ok, _} -> infinity;
        _ -> ?GRACE
    end.

%% @doc Starts a pool. Options, a map or a list of pairs:
%%
%% `module' (needed): a compiled module, or `{file, Path}' or `{file, Path, LoadOptions}' for an
%% artifact that each start loads anew. `instance': options of {@link wasmtime:instantiate/2} for
%% each instance (`#{}'). `name': an atom, `{local, Atom}', `{global, Term}' or `{via, Module, Term}'
%% (none). `size': instances at once, 1..10000 (as many as schedulers are online); a module with a
%% pool of memories must have as many. `max_queue': how many may wait, 0..1,000,000 (10 times
%% `size'). `queue_timeout': ms that a request waits for a place, or `infinity' (5,000). `timeout':
%% ms of a whole `request', its wait and a start section included, or `infinity' (`infinity'). `drain_timeout': ms that
%% the pool waits for what runs when it is stopped, or `infinity' (5,000). `telemetry': `auto' (the
%% default: `telemetry:execute/3' if that is there at the start), `none', or a function of an event's
%% name, measurements and metadata.
%%
%% Errors: class `pool', kind `badarg' with `key'; those of loading the module and of
%% {@link wasmtime:prepare/2}, which are also the exit reason of the process that failed to start;
%% `{already_started, Pid}'.
-spec start_link(options() | [{atom(), term()}]) ->
          {ok, pid()} | {error, wasmtime:error() | {already_started, pid()} | term()}.
start_link(Opts) ->
    case wasmtime_pool_options:pool(Opts) of
        {ok, Complete} -> wasmtime_pool_server:start_link(Complete);
        Error -> Error
    end.

%% @equiv stop(Pool, infinity)
-spec stop(pool()) -> ok | {error, wasmtime:error()}.
stop(Pool) -> stop(Pool, infinity).

%% @doc Ends a pool that no supervisor would start again. As much as its `drain_timeout' is waited
%% for what runs, and all in all no longer than `Timeout' ms: then the pool is killed.
-spec stop(pool(), timeout()) -> ok | {error, wasmtime:error()}.
stop(Pool, Timeout) ->
    with(Pool, wasmtime_pool_options:drain(Timeout), fun(#pool{server = Server, table = Table}, Ms) ->
        Monitor = monitor(process, ets:info(Table, owner)),
        try gen_server:stop(Server, normal, Ms)
        catch
            %% The second one when the time runs out between two waits of gen_server.
            _:Late when Late =:= timeout; Late =:= timeout_value -> unlink(Server), exit(Server, kill);
            exit:_ -> true
        end,
        %% The last of it.
        receive {'DOWN', Monitor, process, _, _} -> ok end
    end).

%% ---- requests -------------------------------------------------------------------------------

%% @equiv run(Pool, Fun, #{})
-spec run(pool(), fun((wasmtime:instance()) -> Result)) -> Result | {error, wasmtime:error()}.
run(Pool, Fun) -> run(Pool, Fun, #{}).

%% @doc Calls a function with a fresh instance, which is destroyed when that returns or raises, and
%% gives back what it returned. What it raises comes through. Option: `queue_timeout' (ms, instead of
%% the pool's). A result `{error, _}' counts as failed.
%%
%% Errors: class `pool': `overload' (nothing ran: too many wait, or `queue_timeout' passed), `closed',
%% `pool_exhausted' (nothing ran: others held the module's memories until `queue_timeout' had passed),
%% `badarg'; and those of {@link wasmtime:instantiate/2}.
-spec run(pool(), fun((wasmtime:instance()) -> Result), request_options()) ->
          Result | {error, wasmtime:error()}.
run(Pool, Fun, Opts) when is_function(Fun, 1) ->
    with(Pool, wasmtime_pool_options:request(run, Opts), fun(P, Request) ->
        wasmtime_pool_run:run(P, function, {wait(P, Request), infinity}, Fun)
    end);
run(Pool, _, _) ->
    with(Pool, badarg(<<"run needs a function of one argument">>), fun(_, _) -> ok end).

%% @equiv request(Pool, Name, Args, #{})
-spec request(pool(), iodata(), [wasmtime:value()]) ->
          {ok, [wasmtime:value()]} | {error, wasmtime:error()}.
request(Pool, Name, Args) -> request(Pool, Name, Args, #{}).

%% @doc Calls an export of a fresh instance. Options: `timeout' (ms of the whole request, waiting and a
%% start section included), `queue_timeout' (ms of waiting; both instead of the pool's), `fuel'.
%%
%% Errors: those of {@link run/3} and of {@link wasmtime:call/4}. `overload' means that no guest ran.
-spec request(pool(), iodata(), [wasmtime:value()], request_options()) ->
          {ok, [wasmtime:value()]} | {error, wasmtime:error()}.
request(Pool, Name, Args, Opts) ->
    with(Pool, named(Name, wasmtime_pool_options:request(request, Opts)),
         fun(#pool{timeout = Default} = P, {Bin, Request}) ->
             Timeout = maps:get(timeout, Request, Default),
             Call = call(Bin, Args, maps:with([fuel], Request), Timeout),
             wasmtime_pool_run:run(P, Bin, {least(Timeout, wait(P, Request)), Timeout}, Call)
         end).

named(Name, {ok, Request}) ->
    case wasmtime_text:name(Name) of
        {ok, Bin} -> {ok, {Bin, Request}};
        error -> {error, wasmtime_error:badarg(call, <<"the name must be " ?TEXT>>)}
    end;
named(_, Error) ->
    Error.

%% The call gets what the wait has left of the time.
call(Name, Args, Opts, infinity) ->
    fun(Inst) -> wasmtime:call(Inst, Name, Args, Opts) end;
call(Name, Args, Opts, Timeout) ->
    Deadline = erlang:monotonic_time(millisecond) + Timeout,
    fun(Inst) ->
        Left = max(0, Deadline - erlang:monotonic_time(millisecond)),
        wasmtime_error:within(wasmtime:call(Inst, Name, Args, Opts#{timeout => Left}), Timeout)
    end.

wait(#pool{queue_timeout = Default}, Request) -> maps:get(queue_timeout, Request, Default).

%% An atom is more than any number.
least(A, B) -> min(A, B).

%% ---- the pool as a whole --------------------------------------------------------------------

%% @doc How the pool does. `state': `open', `closed' (drained, or about to be), `ended' (a drain
%% ended what ran). `size'; `in_flight' and `waiting' at this moment; since the start `done' and
%% `failed' requests, and `overloaded' ones, which did not run. `latency' (of whole requests) and
%% `queue' (their wait for a place): `count', `mean', `p50', `p90', `p99', `max' in microseconds, of
%% requests that got a place, whatever became of them; percentiles and `max' are the upper bounds of
%% buckets, up to 9 percent too high. `failed' are those with a place that answered `{error, _}' or whose
%% function raised.
-spec stats(pool()) -> {ok, stats()} | {error, wasmtime:error()}.
stats(Pool) ->
    with(Pool, {ok, none}, fun(#pool{words = Words, size = Size, stats = Stats}, _) ->
        Totals = wasmtime_pool_stats:totals(Stats),
        {ok, Totals#{state => wasmtime_pool_ticket:state(Words),
                     size => Size,
                     in_flight => wasmtime_pool_ticket:held(Words, Size),
                     waiting => wasmtime_pool_ticket:waiting(Words),
                     latency => wasmtime_pool_stats:summary(Stats, latency),
                     queue => wasmtime_pool_stats:summary(Stats, queue)}}
    end).

%% @equiv drain(Pool, 5000)
-spec drain(pool()) -> {ok, non_neg_integer()} | {error, wasmtime:error()}.
drain(Pool) -> drain(Pool, 5_000).

%% @doc Closes the pool for good: new requests are refused with class `pool', kind `closed'. Those
%% that run or wait already have `Timeout' ms to finish; then the waiting are refused and the
%% instances of the running destroyed, which ends their calls with class `call', kind `destroyed'.
%% Answers how many were ended so; then no instance of the pool is left. The pool's process stays
%% until it is stopped.
-spec drain(pool(), timeout()) -> {ok, non_neg_integer()} | {error, wasmtime:error()}.
drain(Pool, Timeout) ->
    with(Pool, wasmtime_pool_options:drain(Timeout), fun(#pool{server = Server}, Ms) ->
        answer(wasmtime_pool_server:drain(Server, Ms), Pool)
    end).

%% @doc As {@link swap/3} with the same instance options.
-spec swap(pool(), wasmtime_pool_options:source()) -> ok | {error, wasmtime:error()}.
swap(Pool, Source) -> swap(Pool, Source, same).

%% @doc Puts another module in: a compiled one, or `{file, Path}' or `{file, Path, LoadOptions}'.
%% Requests that run finish on the old one, which is freed when the last of them ends; those that get
%% a place from here on, waiting ones too, get the new one. `Instance' are instance options. On an
%% error everything stays as it is.
%%
%% A supervisor that starts the pool again does so with the options of its child specification: name
%% the module there by its file, and replace the file as well.
-spec swap(pool(), wasmtime_pool_options:source(), wasmtime:instance_options() | same) ->
          ok | {error, wasmtime:error()}.
swap(Pool, Source, Instance) ->
    with(Pool, {ok, Instance}, fun(#pool{instance = Same, words = Words} = P, _) ->
        Start = erlang:monotonic_time(),
        Opts = case Instance of same -> Same; _ -> Instance end,
        case wasmtime_pool_ticket:state(Words) =:= open andalso template(P, Source, Opts) of
            {ok, Template} ->
                swapped(wasmtime_pool_server:swap(P#pool.server, Template, Opts), P, Start);
            false ->
                swapped(closed, P, Start);
            Error ->
                Error
        end
    end).

%% ---- helpers --------------------------------------------------------------------------------

template(#pool{size = Size}, Source, Instance) ->
    wasmtime_pool_options:template(#{module => Source, instance => Instance, size => Size}).

%% The pool comes first: what cannot be one is a `badarg' exception whatever else is wrong.
with(Pool, Checked, Do) ->
    case {wasmtime_pool_run:find(Pool), Checked} of
        {{ok, P}, {ok, Value}} -> Do(P, Value);
        {{ok, _}, Error} -> Error;
        {Error, _} -> Error
    end.

swapped(ok, P, Start) ->
    Duration = erlang:monotonic_time() - Start,
    wasmtime_pool_event:emit(P, [swap], #{duration => Duration}, #{});
swapped(closed, #pool{name = Name}, _) ->
    answer(closed, Name).

answer(closed, Pool) -> {error, wasmtime_pool_run:closed(Pool)};
answer(Answer, _) -> Answer.

badarg(Message) -> {error, wasmtime_error:badarg(pool, Message)}.
