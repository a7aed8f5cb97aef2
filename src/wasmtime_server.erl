%% A gen_server that owns one instance, which others call. The guest never runs in it: a caller runs
%% its own call, and the instance lines calls up.
%% Rule: it runs no guest, not even to start, so it always answers; and no handle is given out before
%% the keeper has one, too.

%% @doc A supervised instance with a name.
%%
%% {@link call/3} runs in the calling process, host functions included: one call runs at a time, the
%% others wait in the order of their coming, and a caller that dies ends its own call only. A caller on
%% another node has it run by a process on the server's node. A trap leaves the instance as it is, as
%% with {@link wasmtime:call/3}; with `on_trap => stop' the server stops, and its supervisor starts it
%% with a fresh instance. However the server ends, its instance is destroyed, and calls that run or wait
%% end with class `call', kind `destroyed'. See docs/pool.md.
%%
%% A first argument that cannot be a server is a `badarg' exception; one that does not run answers
%% class `call', kind `destroyed', and another process class `call', kind `badarg' with `key => server'.
-module(wasmtime_server).
-behaviour(gen_server).

-export([child_spec/1, start_link/1, stop/1]).
-export([call/3, call/4, instance/1, interrupt/1, info/1, reset/1, swap/2]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2, format_status/1]).
-export_type([server/0, options/0, info/0]).

-type server() :: pid() | atom() | {local, atom()} | {atom(), node()} | {global, term()}
                | {via, module(), term()}.
-type options() :: wasmtime_pool_options:server().
-type info() :: #{in_flight | calls | failed | fresh := non_neg_integer()}.

%% Ms that a supervisor waits: ending an instance takes no longer than a guest's step.
-define(SHUTDOWN, 5_000).
%% Where wasmtime_server_call finds the timeout of calls.
-define(TIMEOUT, {?MODULE, timeout}).

-record(state, {
    opts :: map(),
    module = none :: wasmtime:wasm_module() | none,
    %% What the keeper destroys, by id; the last is the one that new calls get.
    table :: ets:table(),
    fresh = 0 :: non_neg_integer(),
    inst = none :: wasmtime:instance() | none,
    %% Who waits for the first instance, and for what of it.
    early = #{} :: #{reference() => {gen_server:from(), enter | instance}},
    %% Instances to be made, the first of them by a process.
    changes = [] :: [{gen_server:from(), wasmtime_pool_options:source() | same}],
    maker = none :: wasmtime_server_make:maker() | none,
    %% Calls under way: the instance of each and the monitor of its process.
    calls = #{} :: #{reference() => {non_neg_integer(), reference()}},
    monitors = #{} :: #{reference() => reference()},
    counts = #{calls => 0, failed => 0} :: #{calls | failed => non_neg_integer()}
}).

%% ---- life -----------------------------------------------------------------------------------

%% @doc A child specification for a supervisor; its id is the server's name. `{wasmtime_server, Opts}'
%% does the same among the children of an Elixir supervisor. Options as {@link start_link/1}.
-spec child_spec(options() | [{atom(), term()}]) -> supervisor:child_spec().
child_spec(Opts) ->
    #{id => wasmtime_pool_options:spec_id(?MODULE, Opts),
      start => {?MODULE, start_link, [Opts]},
      restart => permanent,
      shutdown => ?SHUTDOWN,
      type => worker,
      modules => [?MODULE]}.

%% @doc Starts a server with a fresh instance. Options, a map or a list of pairs:
%%
%% `module' (needed): a compiled module, or `{file, Path}' or `{file, Path, LoadOptions}' for an
%% artifact that each start loads anew. `instance': options of {@link wasmtime:instantiate/2} (`#{}').
%% `init': calls that a fresh instance begins with, names or `{Name, Args}', or a function of the
%% instance that returns `ok' (none); a process of its own makes them, without a limit of time, and the
%% server answers meanwhile. An init cannot call its own server before that has an instance. `name': an atom, `{local, Atom}', `{global, Term}' or
%% `{via, Module, Term}' (none). `timeout': ms of a call that names none, its wait included, or
%% `infinity' (`infinity'). `on_trap': `keep' (the default), or `stop' the server when a call ends with
%% class `trap' or `exit', or its caller dies.
%%
%% Errors: class `instantiate', kind `badarg' with `key'; those of loading the module, of
%% {@link wasmtime:instantiate/2} and of the `init' calls, which are also the exit reason of the process
%% that failed to start; `{already_started, Pid}'.
-spec start_link(options() | [{atom(), term()}]) ->
          {ok, pid()} | {error, wasmtime:error() | {already_started, pid()} | term()}.
start_link(Given) ->
    case wasmtime_pool_options:server(Given) of
        {ok, Opts} -> started(wasmtime_name:start_link(?MODULE, Opts));
        Error -> Error
    end.

%% The server can be stopped while it starts, so it runs already; whoever starts it waits.
started({ok, Server}) ->
    try gen_server:call(Server, start, infinity) of
        ok -> {ok, Server}
    catch
        exit:{Reason, _} -> {error, Reason}
    end;
started(Error) ->
    Error.

%% @doc Ends a server that no supervisor would start again.
-spec stop(server()) -> ok | {error, wasmtime:error()}.
stop(Server) ->
    case wasmtime_server_call:reach(Server, fun(Process) -> gen_server:stop(Process, normal, infinity) end) of
        {ok, _} -> ok;
        Error -> Error
    end.

%% ---- calls ----------------------------------------------------------------------------------

%% @equiv call(Server, Name, Args, #{})
-spec call(server(), iodata(), [wasmtime:value()]) ->
          {ok, [wasmtime:value()]} | {error, wasmtime:error()}.
call(Server, Name, Args) -> call(Server, Name, Args, #{}).

%% @doc Calls an export of the server's instance. Options and errors are those of
%% {@link wasmtime:call/4}; `timeout' covers waiting for other calls as well, and ends the guest's call
%% with the wait. A host function may call its own server again: that call runs inside the one that
%% waits for it.
-spec call(server(), iodata(), [wasmtime:value()], wasmtime:call_options()) ->
          {ok, [wasmtime:value()]} | {error, wasmtime:error()}.
call(Server, Name, Args, Opts) ->
    case wasmtime_options:call(Opts) of
        {ok, _} -> wasmtime_server_call:call(Server, Name, Args, Opts);
        Error -> _ = wasmtime_name:find(Server), Error
    end.

%% @doc The instance, for everything that {@link wasmtime} does with one: memory, output. It is the
%% server's: do not destroy it, and do not keep it, for a reset or a restart makes another.
-spec instance(server()) -> {ok, wasmtime:instance()} | {error, wasmtime:error()}.
instance(Server) -> wasmtime_server_call:instance(Server).

%% @doc Ends the call that runs with the trap `interrupt', and those that run on instances from before a
%% reset or swap; others follow. Not an `init'.
-spec interrupt(server()) -> ok | not_running | {error, wasmtime:error()}.
interrupt(Server) -> answer(wasmtime_server_call:ask(Server, interrupt)).

%% @doc `in_flight': calls that run or wait; since the start: `calls' that ended, `failed' ones among
%% them, and `fresh' instances that were made.
-spec info(server()) -> {ok, info()} | {error, wasmtime:error()}.
info(Server) -> wasmtime_server_call:ask(Server, info).

%% @doc Makes a fresh instance. Calls that run or wait finish on the old one, which is destroyed then;
%% later ones get the fresh one. An error of making it leaves everything as it is.
-spec reset(server()) -> ok | {error, wasmtime:error() | term()}.
reset(Server) -> answer(wasmtime_server_call:ask(Server, reset)).

%% @doc As {@link reset/1}, with another module: a compiled one, `{file, Path}' or
%% `{file, Path, LoadOptions}'. A supervisor's restart takes the module of the child specification.
-spec swap(server(), wasmtime_pool_options:source()) -> ok | {error, wasmtime:error() | term()}.
swap(Server, Source) -> answer(wasmtime_server_call:ask(Server, {swap, Source})).

answer({ok, Answer}) -> Answer;
answer(Error) -> Error.

%% ---- the server -----------------------------------------------------------------------------

%% @private
-spec init(map()) -> {ok, #state{}}.
init(#{timeout := Timeout} = Opts) ->
    process_flag(trap_exit, true),
    put(?TIMEOUT, Timeout),
    {ok, Table} = wasmtime_keeper:start_link(none),
    {ok, #state{opts = Opts, table = Table}}.

%% @private
-spec terminate(term(), #state{}) -> ok.
terminate(_, #state{maker = Maker, table = Table, inst = Inst, opts = #{name := Name}}) ->
    Maker =:= none orelse wasmtime_server_make:stop(Maker),
    ok = wasmtime_keeper:destroy_all(Table),
    case Inst of
        %% Whoever starts it may do so again at once.
        none -> wasmtime_name:unregister(Name);
        _ -> wasmtime:destroy(Inst)
    end.

%% @private
%% What is logged shows no artifact's key.
-spec format_status(gen_server:format_status()) -> gen_server:format_status().
format_status(Status) -> wasmtime_error:hide(Status).

%% @private
-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}} | {noreply, #state{}}.
handle_call(Request, {Maker, _}, #state{maker = {Maker, _}, inst = Inst} = S)
  when Inst =:= none, Request =/= info, Request =/= interrupt; Request =:= reset; element(1, Request) =:= swap ->
    %% It would wait for itself.
    Message = <<"an init cannot ask its own server for an instance that is not made yet">>,
    {reply, {error, wasmtime_error:badarg(call, server, Message)}, S};
handle_call({enter, Ref}, {Pid, _} = From, S) ->
    reply(enter, Ref, From, entered(Ref, Pid, forgotten(Ref, S)));
handle_call(instance, From, S) ->
    reply(instance, make_ref(), From, S);
handle_call(interrupt, _, #state{table = Table, fresh = Fresh} = S) ->
    %% Not the one that is being made.
    Answers = [wasmtime:interrupt(Inst) || {Id, _, Inst} <- wasmtime_keeper:rows(Table), Id =< Fresh],
    {reply, hd([Answer || ok = Answer <- Answers] ++ [not_running]), S};
handle_call(info, _, #state{calls = Calls, counts = Counts, fresh = Fresh} = S) ->
    {reply, Counts#{in_flight => map_size(Calls), fresh => Fresh}, S};
handle_call(start, From, #state{opts = #{module := Source} = Opts} = S) ->
    %% Kept there, a module would outlive a swap.
    {noreply, change(From, Source, S#state{opts = Opts#{module := none}})};
handle_call(reset, From, S) ->
    {noreply, change(From, same, S)};
handle_call({swap, Source}, From, S) ->
    {noreply, change(From, Source, S)};
handle_call(_, _, S) ->
    {reply, {error, wasmtime_error:badarg(call, <<"no request of a wasmtime_server">>)}, S}.

reply(What, Ref, From, #state{inst = none, early = Early} = S) ->
    {noreply, S#state{early = Early#{Ref => {From, What}}}};
reply(What, _, _, S) ->
    {reply, present(What, S), S}.

present(enter, #state{inst = Inst, opts = #{timeout := Timeout}}) -> {Inst, Timeout};
present(instance, #state{inst = Inst}) -> Inst.

entered(Ref, Pid, #state{calls = Calls, monitors = Monitors} = S) ->
    Monitor = monitor(process, Pid),
    S#state{calls = Calls#{Ref => {id(S), Monitor}}, monitors = Monitors#{Monitor => Ref}}.

%% The instance that new calls get: the first one when there is none yet.
id(#state{fresh = Fresh}) -> max(1, Fresh).

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}} | {stop, term(), #state{}}.
handle_cast({leave, Ref, Ending}, S) ->
    leave(Ref, Ending, S);
handle_cast(_, S) -> {noreply, S}.

%% @private
-spec handle_info(term(), #state{}) ->
          {noreply, #state{}} | {noreply, #state{}, hibernate} | {stop, term(), #state{}}.
handle_info({'DOWN', Monitor, process, _, Reason}, #state{maker = {_, Monitor}, table = Table} = S) ->
    Made = wasmtime_server_make:result(Reason, Table, S#state.fresh + 1),
    made(Made, S#state{maker = none});
handle_info({'DOWN', Monitor, process, _, Reason}, #state{monitors = Monitors} = S) ->
    leave(maps:get(Monitor, Monitors, none), {trap, {caller_died, Reason}}, S);
handle_info({'EXIT', _, Reason}, #state{table = Table} = S) ->
    case wasmtime_keeper:is_alive(Table) of
        true -> {noreply, S};
        false -> {stop, Reason, S}
    end;
handle_info(_, S) -> {noreply, S}.

leave(Ref, Ending, S) ->
    case taken(Ref, S) of
        {Id, Next} -> ended(Ending, Id, retired(Id, counted(Ending, Next)));
        error -> {noreply, S}
    end.

%% One that asks again, as the server did not answer in time.
forgotten(Ref, S) ->
    case taken(Ref, S) of
        {Id, Next} -> retired(Id, Next);
        error -> S
    end.

taken(Ref, #state{calls = Calls, monitors = Monitors, early = Early} = S) ->
    case maps:take(Ref, Calls) of
        {{Id, Monitor}, Rest} ->
            true = demonitor(Monitor, [flush]),
            {Id, S#state{calls = Rest, monitors = maps:remove(Monitor, Monitors),
                         early = maps:remove(Ref, Early)}};
        error ->
            error
    end.

%% A trap of an instance that was replaced meanwhile, or not made yet, is of no more interest.
ended({trap, Why}, Id, #state{fresh = Id, opts = #{on_trap := stop}} = S) ->
    {stop, {wasmtime_trap, Why}, S};
ended(_, _, S) ->
    {noreply, S}.

counted(ok, S) -> count(calls, S);
counted(_, S) -> count(failed, count(calls, S)).

count(What, #state{counts = Counts} = S) ->
    S#state{counts = maps:update_with(What, fun(N) -> N + 1 end, Counts)}.

%% Ends an instance that is not the present one, once no call of it is left.
retired(Id, #state{calls = Calls, table = Table} = S) ->
    case Id =:= id(S) orelse lists:keymember(Id, 1, maps:values(Calls)) of
        true ->
            S;
        false ->
            [{Id, _, Old}] = ets:take(Table, Id),
            _ = spawn(fun() -> wasmtime:destroy(Old) end),
            S
    end.

%% ---- instances ------------------------------------------------------------------------------

%% One after the other, in the order of their coming.
change(From, Source, #state{changes = Changes} = S) ->
    next(S#state{changes = Changes ++ [{From, Source}]}).

next(#state{maker = none, changes = [{_, Given} | _]} = S) ->
    #state{module = Mod, opts = Opts, table = Table, fresh = Fresh} = S,
    Source = case Given of same -> Mod; _ -> Given end,
    S#state{maker = wasmtime_server_make:start(Source, Opts, Table, Fresh + 1)};
next(S) ->
    S.

made({ok, Mod, Inst}, #state{changes = [{From, _} | Rest], fresh = Fresh} = S) ->
    gen_server:reply(From, ok),
    Next = S#state{module = Mod, inst = Inst, fresh = Fresh + 1, changes = Rest},
    %% What is garbage holds the old module.
    {noreply, next(retired(max(1, Fresh), welcomed(Next))), hibernate};
made({error, Error}, #state{inst = none, opts = #{name := Name}} = S) ->
    %% What is logged of it keeps no module alive.
    {stop, Error, S#state{opts = #{name => Name}, module = none, changes = []}};
made(Error, #state{changes = [{From, _} | Rest]} = S) ->
    gen_server:reply(From, Error),
    {noreply, next(S#state{changes = Rest})}.

welcomed(#state{early = Early} = S) ->
    maps:foreach(fun(_, {From, What}) -> gen_server:reply(From, present(What, S)) end, Early),
    S#state{early = #{}}.
