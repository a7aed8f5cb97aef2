%% @private
%% The server of a pool: who waits, whose holder died, drain and swap. A request that finds a free
%% place never comes here.
%% Rule: it runs no guest and waits for none, so it always answers.
-module(wasmtime_pool_server).
-behaviour(gen_server).

-include("wasmtime_pool.hrl").

-export([start_link/1, wait/3, forsaken/2, freed/1, drain/2, swap/3]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).
-export([clean/2]).

%% How often it looks for dead holders, in ms: while some wait, while some run, while none does.
%% Whoever was seen once is monitored.
-define(BUSY, 10).
-define(RUNNING, 100).
-define(QUIET, 1000).
%% How much later than the server, in ms, one that waits gives up by itself.
-define(SLACK, 50).

-record(waiter, {from :: gen_server:from(), timer :: reference() | none}).
-record(drain, {from :: gen_server:from(), since :: integer()}).
-record(state, {
    pool :: #pool{},
    drain_timeout :: timeout(),
    %% By id, the order in which the requests came.
    waiters = gb_trees:empty() :: gb_trees:tree(pos_integer(), #waiter{}),
    %% Monitors of holders and of those that wait, both ways.
    watched = #{} :: #{pos_integer() => reference()},
    monitors = #{} :: #{reference() => pos_integer()},
    %% Processes that end the instance of a request whose holder is gone.
    reapers = #{} :: #{reference() => pos_integer()},
    drains = #{} :: #{reference() => #drain{}},
    forced = 0 :: non_neg_integer(),
    tick :: reference()
}).

%% ---- from other processes -------------------------------------------------------------------

%% @doc Starts a pool with complete options.
-spec start_link(map()) -> {ok, pid()} | {error, term()}.
start_link(Opts) -> wasmtime_name:start_link(?MODULE, Opts).

%% @doc Waits in the queue for a place. `unanswered' when the server does not say in time that the
%% time is up: it may still give a place.
-spec wait(#pool{}, pos_integer(), timeout()) ->
          {ok, pos_integer()} | queue_full | queue_timeout | closed | unanswered.
wait(#pool{server = Server}, Id, Ms) ->
    try gen_server:call(Server, {wait, Id, Ms}, wasmtime_options:later(Ms, ?SLACK))
    catch
        exit:{timeout, _} -> unanswered;
        exit:_ -> closed
    end.

%% @doc Says that a request waits no more; its row is gone.
-spec forsaken(#pool{}, pos_integer()) -> ok.
forsaken(#pool{server = Server}, Id) -> gen_server:cast(Server, {forsaken, Id}).

%% @doc Says that a place is free.
-spec freed(#pool{}) -> ok.
freed(#pool{server = Server}) -> Server ! {?MODULE, freed}, ok.

%% @doc Closes the pool and waits for what is under way; answers how many were ended by force.
-spec drain(pid(), timeout()) -> {ok, non_neg_integer()} | closed.
drain(Server, Ms) -> ask(Server, {drain, Ms}, closed).

%% @doc From here on requests get instances of another template.
-spec swap(pid(), wasmtime:template(), map()) -> ok | closed.
swap(Server, Template, Instance) -> ask(Server, {swap, Template, Instance}, closed).

ask(Server, Request, Gone) ->
    try gen_server:call(Server, Request, infinity)
    catch exit:_ -> Gone
    end.

%% ---- life -----------------------------------------------------------------------------------

-spec init(map()) -> {ok, #state{}, hibernate} | {stop, wasmtime_error:t()}.
init(#{drain_timeout := DrainTimeout} = Opts) ->
    process_flag(trap_exit, true),
    case wasmtime_pool_options:template(Opts) of
        {ok, Template} ->
            Pool = pool(Opts, Template),
            ok = publish(Pool),
            {ok, #state{pool = Pool, drain_timeout = DrainTimeout, tick = tick(?QUIET)}, hibernate};
        {error, Error} ->
            {stop, Error}
    end.

pool(#{name := Name, size := Size} = Opts, Template) ->
    Words = wasmtime_pool_ticket:new(Size),
    {ok, Table} = wasmtime_keeper:start_link(cleaning(Words)),
    #pool{server = self(), name = shown(Name), size = Size, template = Template, table = Table,
          max_queue = map_get(max_queue, Opts), queue_timeout = map_get(queue_timeout, Opts),
          timeout = map_get(timeout, Opts), instance = map_get(instance, Opts),
          words = Words, stats = wasmtime_pool_stats:new(),
          telemetry = wasmtime_pool_event:callback(map_get(telemetry, Opts))}.

shown(none) -> self();
shown({local, Name}) -> Name;
shown(Name) -> Name.

publish(Pool) -> persistent_term:put(?POOL(self()), Pool).

%% Nothing runs in a pool that is closed so.
cleaning(Words) -> {?MODULE, clean, [Words, self()]}.

-spec clean(wasmtime_pool_ticket:words(), pid()) -> ok.
clean(Words, Server) ->
    ok = wasmtime_pool_ticket:set_state(Words, ended),
    _ = persistent_term:erase(?POOL(Server)),
    ok.

-spec terminate(term(), #state{}) -> ok.
terminate(Reason, #state{pool = #pool{words = Words, table = Table}, drain_timeout = Ms} = S) ->
    ok = wasmtime_pool_ticket:set_state(Words, closed),
    _ = refuse_all(S),
    Left = case graceful(Reason) of true -> Ms; false -> 0 end,
    wasmtime_keeper:finish(Table, cleaning(Words), Left).

graceful(normal) -> true;
graceful(shutdown) -> true;
graceful({shutdown, _}) -> true;
graceful(_) -> false.

%% ---- requests -------------------------------------------------------------------------------

-spec handle_call(term(), gen_server:from(), #state{}) ->
          {reply, term(), #state{}} | {reply, term(), #state{}, hibernate} | {noreply, #state{}}.
handle_call({wait, Id, Ms}, {Pid, _} = From, #state{pool = #pool{words = Words, table = Table}} = S) ->
    case {wasmtime_pool_ticket:state(Words), wasmtime_keeper:has(Table, Id)} of
        {open, true} -> {noreply, bounded(Id, serve(enqueue(Id, From, Ms, watch(Id, Pid, S))))};
        {open, false} -> {reply, queue_timeout, S};
        _ -> {reply, closed, S}
    end;
handle_call({drain, Ms}, From, #state{pool = #pool{words = Words}, drains = Drains} = S) ->
    ok = wasmtime_pool_ticket:set_state(Words, closed),
    Timer = after_ms(Ms, drain_over),
    Drain = #drain{from = From, since = erlang:monotonic_time()},
    {noreply, drained(hurry(S#state{drains = Drains#{Timer => Drain}}))};
handle_call({swap, Template, Instance}, _, #state{pool = #pool{words = Words} = Pool} = S) ->
    case wasmtime_pool_ticket:state(Words) of
        open ->
            Next = Pool#pool{template = Template, instance = Instance},
            ok = publish(Next),
            %% What is garbage holds the old module.
            {reply, ok, S#state{pool = Next}, hibernate};
        _ ->
            {reply, closed, S}
    end;
handle_call(_, _, S) ->
    {reply, {error, wasmtime_error:badarg(pool, <<"no request of a wasmtime_pool">>)}, S}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast({forsaken, Id}, S) -> {noreply, serve(answer(Id, queue_timeout, S))};
handle_cast(_, S) -> {noreply, S}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, term(), #state{}}.
handle_info({?MODULE, freed}, S) ->
    {noreply, serve(S)};
handle_info({timeout, Tick, look}, #state{tick = Tick} = S) ->
    Next = drained(serve(look(S))),
    {noreply, Next#state{tick = tick(pause(Next))}};
handle_info({timeout, _, {waited, Id}}, S) ->
    {noreply, answer(Id, queue_timeout, S)};
handle_info({timeout, Timer, drain_over}, #state{drains = Drains} = S) when is_map_key(Timer, Drains) ->
    {noreply, force(S)};
handle_info({'DOWN', Monitor, process, _, _}, #state{monitors = Monitors, reapers = Reapers} = S) ->
    case {Monitors, Reapers} of
        {#{Monitor := Id}, _} -> {noreply, serve(reap(Id, S))};
        {_, #{Monitor := Id}} -> {noreply, drained(serve(reaped(Monitor, Id, S)))};
        _ -> {noreply, S}
    end;
handle_info({'EXIT', _, Reason}, #state{pool = #pool{table = Table}} = S) ->
    case wasmtime_keeper:is_alive(Table) of
        true -> {noreply, S};
        false -> {stop, Reason, S}
    end;
handle_info(_, S) ->
    {noreply, S}.

%% ---- the queue ------------------------------------------------------------------------------

enqueue(Id, From, Ms, #state{waiters = Waiters} = S) ->
    Waiter = #waiter{from = From, timer = after_ms(Ms, {waited, Id})},
    hurry(waiters(gb_trees:enter(Id, Waiter, Waiters), S)).

%% One that found no place, in a queue that is too long by it.
bounded(Id, #state{pool = #pool{max_queue = Max}, waiters = Waiters} = S) ->
    case gb_trees:size(Waiters) > Max andalso gb_trees:is_defined(Id, Waiters) of
        true -> answer(Id, queue_full, S);
        false -> S
    end.

%% Gives free places to those that came first.
serve(#state{waiters = Waiters, pool = #pool{words = Words, size = Size}} = S) ->
    case gb_trees:is_empty(Waiters) of
        true ->
            S;
        false ->
            {Id, _} = gb_trees:smallest(Waiters),
            case wasmtime_pool_ticket:claim(Words, Size, Id) of
                {ok, Place} -> serve(served(Id, Place, S));
                full -> S
            end
    end.

%% See wasmtime_pool_run: one that gave up takes its row away, and then looks for a place.
served(Id, Place, #state{pool = #pool{words = Words, table = Table}} = S) ->
    case wasmtime_keeper:has(Table, Id) of
        true ->
            answer(Id, {ok, Place}, S);
        false ->
            _ = wasmtime_pool_ticket:give(Words, Place, Id),
            answer(Id, queue_timeout, S)
    end.

answer(Id, Answer, #state{waiters = Waiters} = S) ->
    case gb_trees:take_any(Id, Waiters) of
        {#waiter{from = From, timer = Timer}, Rest} ->
            stop(Timer),
            gen_server:reply(From, Answer),
            waiters(Rest, S);
        error ->
            S
    end.

%% Requests must see at once that some wait, or that none does.
waiters(Waiters, #state{pool = #pool{words = Words}} = S) ->
    ok = wasmtime_pool_ticket:set_waiting(Words, gb_trees:size(Waiters)),
    S#state{waiters = Waiters}.

refuse_all(#state{waiters = Waiters} = S) ->
    lists:foldl(fun(Id, Acc) -> answer(Id, closed, Acc) end, S, gb_trees:keys(Waiters)).

%% ---- the dead -------------------------------------------------------------------------------

%% Monitors every request that has a row, and no other.
look(#state{pool = #pool{table = Table}, watched = Watched} = S) ->
    Rows = ets:select(Table, [{{'$1', '$2', '_'}, [], [{{'$1', '$2'}}]}]),
    Gone = maps:without([Id || {Id, _} <- Rows], Watched),
    Kept = maps:fold(fun(Id, _, Acc) -> unwatch(Id, Acc) end, S, Gone),
    lists:foldl(fun({Id, Pid}, Acc) -> watch(Id, Pid, Acc) end, Kept, Rows).

watch(Id, _, #state{watched = Watched} = S) when is_map_key(Id, Watched) ->
    S;
watch(Id, Pid, #state{watched = Watched, monitors = Monitors} = S) ->
    Monitor = monitor(process, Pid),
    S#state{watched = Watched#{Id => Monitor}, monitors = Monitors#{Monitor => Id}}.

unwatch(Id, #state{watched = Watched, monitors = Monitors} = S) ->
    case maps:take(Id, Watched) of
        {Monitor, Rest} ->
            true = demonitor(Monitor, [flush]),
            S#state{watched = Rest, monitors = maps:remove(Monitor, Monitors)};
        error ->
            S
    end.

%% Ends a request from outside: its instance first, so that a new one finds room.
reap(Id, #state{pool = #pool{table = Table}, reapers = Reapers} = S0) ->
    S = answer(Id, closed, unwatch(Id, S0)),
    case ets:take(Table, Id) of
        [{Id, _, none}] ->
            give(Id, S);
        [{Id, _, Inst}] ->
            {_, Monitor} = spawn_monitor(fun() -> wasmtime:destroy(Inst) end),
            S#state{reapers = Reapers#{Monitor => Id}};
        [] ->
            S
    end.

reaped(Monitor, Id, #state{reapers = Reapers} = S) ->
    give(Id, S#state{reapers = maps:remove(Monitor, Reapers)}).

give(Id, #state{pool = #pool{words = Words, size = Size}} = S) ->
    case wasmtime_pool_ticket:find(Words, Size, Id) of
        {ok, Place} -> _ = wasmtime_pool_ticket:give(Words, Place, Id), S;
        none -> S
    end.

%% ---- drain ----------------------------------------------------------------------------------

%% Tells those that drain the pool once nobody has a place or waits for one.
drained(#state{drains = Drains} = S) when map_size(Drains) =:= 0 ->
    S;
drained(#state{pool = #pool{words = Words, size = Size}} = S) ->
    #state{drains = Drains, waiters = Waiters, reapers = Reapers} = S,
    case gb_trees:size(Waiters) + map_size(Reapers) + wasmtime_pool_ticket:held(Words, Size) of
        0 ->
            maps:foreach(fun(Timer, Drain) -> told(Timer, Drain, S) end, Drains),
            S#state{drains = #{}, forced = 0};
        _ ->
            S
    end.

told(Timer, #drain{from = From, since = Since}, #state{pool = Pool, forced = Forced}) ->
    stop(Timer),
    Duration = erlang:monotonic_time() - Since,
    gen_server:reply(From, {ok, Forced}),
    %% A callback may take long, or ask this process something.
    _ = spawn(fun() ->
        wasmtime_pool_event:emit(Pool, [drain], #{duration => Duration, forced => Forced}, #{})
    end),
    ok.

%% The time is up.
force(#state{pool = #pool{words = Words}} = S) ->
    ok = wasmtime_pool_ticket:set_state(Words, ended),
    drained(reap_all(refuse_all(S))).

reap_all(#state{pool = #pool{words = Words, size = Size}, forced = Forced} = S) ->
    Holders = wasmtime_pool_ticket:holders(Words, Size),
    Next = lists:foldl(fun reap/2, S, Holders),
    Next#state{forced = Forced + length(Holders)}.

%% ---- time -----------------------------------------------------------------------------------

tick(Ms) -> erlang:start_timer(Ms, self(), look).

%% The next look comes soon.
hurry(#state{tick = Tick} = S) ->
    case erlang:read_timer(Tick) of
        Ms when is_integer(Ms), Ms > ?BUSY ->
            stop(Tick),
            S#state{tick = tick(?BUSY)};
        _ ->
            S
    end.

pause(#state{waiters = Waiters, drains = Drains, watched = Watched}) ->
    case map_size(Drains) + gb_trees:size(Waiters) of
        0 when map_size(Watched) =:= 0 -> ?QUIET;
        0 -> ?RUNNING;
        _ -> ?BUSY
    end.

after_ms(infinity, _) -> make_ref();
after_ms(Ms, Message) -> erlang:start_timer(Ms, self(), Message).

stop(Timer) ->
    _ = erlang:cancel_timer(Timer),
    ok.
