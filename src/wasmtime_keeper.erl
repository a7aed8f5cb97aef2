%% @private
%% Keeps the instances of a server or a pool in a table, and ends them when that process is gone.
%% Rule: it does nothing else, so that nothing but a kill can end it; then its owner has the table, and
%% ends, too. It waits in the loop of gen_server only: code of this module may be purged meanwhile.
-module(wasmtime_keeper).
-behaviour(gen_server).

-include("wasmtime_instance.hrl").

-export([start_link/1, is_alive/1, finish/3, destroy_all/1, rows/1, has/2, bare/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).
-export_type([clean/0]).

-type clean() :: none | {module(), Function :: atom(), [term()]}.
%% What is done when the owner is gone, before the instances are ended.

%% How often the end of the last request is looked for when the owner ends, in ms.
-define(LOOK, 5).

-record(state, {owner :: pid(), table :: ets:table(), clean :: clean()}).

%% @doc A table of `{Id, Holder, Instance | none}', which any process may write. It outlives the
%% calling process just long enough to end what it holds; `Clean' runs then, too.
-spec start_link(clean()) -> {ok, ets:table()}.
start_link(Clean) ->
    %% It links itself: a parent's end would be logged as its own.
    {ok, Keeper} = gen_server:start(?MODULE, {self(), Clean}, []),
    {ok, gen_server:call(Keeper, table, infinity)}.

%% @doc Whether the table of the calling process has its keeper still.
-spec is_alive(ets:table()) -> boolean().
is_alive(Table) -> not lists:member(ets:info(Table, owner), [undefined, self()]).

%% @doc Waits up to so many ms until no living process has a row, then does what the owner's end does.
%% Its waiting is done elsewhere: a caller in its tail has no code of its own on the stack meanwhile.
-spec finish(ets:table(), clean(), timeout()) -> ok.
finish(Table, Clean, Ms) ->
    Self = self(),
    case ets:info(Table, owner) of
        Keeper when is_pid(Keeper), Keeper =/= Self -> gen_server:call(Keeper, {finish, Ms}, infinity);
        _ -> finish(Table, Clean)
    end.

finish(Table, Clean) ->
    _ = case Clean of
        none -> ok;
        {Module, Function, Args} -> apply(Module, Function, Args)
    end,
    destroy_all(Table).

%% ---- the keeper -----------------------------------------------------------------------------

-spec init({pid(), clean()}) -> {ok, #state{}}.
init({Owner, Clean}) ->
    process_flag(trap_exit, true),
    true = link(Owner),
    %% If we are killed, the owner can still end what is in the table.
    Options = [public, {heir, Owner, ?MODULE}, {write_concurrency, true}, {read_concurrency, true}],
    {ok, #state{owner = Owner, table = ets:new(?MODULE, Options), clean = Clean}}.

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}} | {noreply, #state{}}.
handle_call(table, _, #state{table = Table} = S) ->
    {reply, Table, S};
handle_call({finish, Ms}, From, S) ->
    {noreply, run_out(From, Ms, S)};
handle_call(_, _, S) ->
    {noreply, S}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_, S) -> {noreply, S}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, normal, #state{}}.
handle_info({'EXIT', Owner, _}, #state{owner = Owner} = S) -> {stop, normal, S};
handle_info({look, From, Ms}, S) -> {noreply, run_out(From, Ms, S)};
handle_info(_, S) -> {noreply, S}.

-spec terminate(term(), #state{}) -> ok.
terminate(_, #state{table = Table, clean = Clean}) -> finish(Table, Clean).

run_out(From, Ms, #state{table = Table, clean = Clean} = S) ->
    case Ms =/= 0 andalso lists:any(fun({_, Pid, _}) -> is_process_alive(Pid) end, rows(Table)) of
        true ->
            _ = erlang:send_after(?LOOK, self(), {look, From, less(Ms, ?LOOK)}),
            S;
        false ->
            gen_server:reply(From, finish(Table, Clean)),
            S
    end.

less(infinity, _) -> infinity;
less(Ms, Less) -> max(0, Ms - Less).

%% ---- the table ------------------------------------------------------------------------------

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
