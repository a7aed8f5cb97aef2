%% @private
%% Keeps the instances of a server or a pool in a table, and ends them when that process is gone.
%% Rule: it does nothing else, so that nothing but a kill can end it; then its owner ends, too.
-module(wasmtime_keeper).

-include("wasmtime_instance.hrl").

-export([start_link/1, destroy_all/1, rows/1, has/2, bare/1]).
-export([init/2]).

%% @doc A table of `{Id, Holder, Instance | none}', which any process may write. It outlives the
%% calling process just long enough to end what it holds; `Clean' runs then, too.
-spec start_link(fun(() -> term())) -> {ok, ets:table()} | {error, term()}.
start_link(Clean) -> proc_lib:start_link(?MODULE, init, [self(), Clean]).

%% @private
-spec init(pid(), fun(() -> term())) -> ok.
init(Owner, Clean) ->
    process_flag(trap_exit, true),
    Table = ets:new(?MODULE, [public, {write_concurrency, true}, {read_concurrency, true}]),
    proc_lib:init_ack({ok, Table}),
    wait(Owner, Table, Clean).

wait(Owner, Table, Clean) ->
    receive
        {'EXIT', Owner, _} ->
            _ = Clean(),
            destroy_all(Table);
        _ ->
            wait(Owner, Table, Clean)
    end.

%% @doc Ends every instance in the table, all at once, and empties it. A table that is gone is empty.
-spec destroy_all(ets:table()) -> ok.
destroy_all(Table) ->
    Insts = [Inst || {Id, _, _} <- rows(Table), {_, _, Inst} <- take(Table, Id), Inst =/= none],
    Ends = [spawn_monitor(fun() -> wasmtime:destroy(Inst) end) || Inst <- Insts],
    _ = [receive {'DOWN', Monitor, process, Pid, _} -> ok end || {Pid, Monitor} <- Ends],
    ok.

%% @doc The rows of a table.
-spec rows(ets:table()) -> [{term(), pid(), wasmtime:instance() | none}].
rows(Table) -> try ets:tab2list(Table) catch error:badarg -> [] end.

%% @doc Whether there is a row.
-spec has(ets:table(), term()) -> boolean().
has(Table, Id) -> try ets:member(Table, Id) catch error:badarg -> false end.

take(Table, Id) -> try ets:take(Table, Id) catch error:badarg -> [] end.

%% @doc A handle that can only be used to destroy its instance: small enough to be copied.
-spec bare(wasmtime:instance()) -> wasmtime:instance().
bare(#wasmtime_instance{} = Inst) -> Inst#wasmtime_instance{funs = #{}, table = {}}.
