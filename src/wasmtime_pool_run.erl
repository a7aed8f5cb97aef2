%% @private
%% One request of a pool, in the process that makes it: a place, a fresh instance, the work, and
%% everything given back.
%% Rule: without a queue no message is sent and no other process is asked; and the instance is gone
%% before its place is free.
-module(wasmtime_pool_run).

-include("wasmtime_pool.hrl").

-export([run/4, find/1, closed/1]).

%% Where a place is free and its room in the module's pool of memories is not: ms until it is tried
%% again, at first and at most.
-define(SOON, 1).
-define(LATER, 16).

%% @doc Runs Fun with a fresh instance. Waits at most Wait ms for a place, and ends a start section
%% Timeout ms after the request began; Label says to telemetry what it is.
-spec run(#pool{}, binary() | function, {Wait :: timeout(), Timeout :: timeout()},
          fun((wasmtime:instance()) -> Result)) -> Result | {error, wasmtime_error:t()}.
run(Pool, Label, {Wait, _} = Limits, Fun) ->
    Start = erlang:monotonic_time(),
    Meta = #{request => Label},
    emit(Pool, start, #{monotonic_time => Start, system_time => erlang:system_time()}, Meta),
    case enter(Pool, Wait) of
        {ok, Id, Place} ->
            Queued = erlang:monotonic_time() - Start,
            with_place(Pool, Id, Place, Limits, Fun, {Start, Queued, Meta});
        {error, #{kind := Kind}} = Error ->
            Queued = erlang:monotonic_time() - Start,
            _ = Kind =:= overload andalso overloaded(Pool, Queued, Error, Meta),
            stopped(Pool, Error, {Start, Queued, Meta})
    end.

with_place(Pool, Id, Place, {Wait, Timeout}, Fun, {Start, _, _} = Times) ->
    case instance(Pool, Id, {Start, Wait, Timeout}, ?SOON) of
        {ok, Inst} ->
            try Fun(Inst) of
                Result ->
                    leave(Pool, Id, Place, Inst),
                    counted(Pool, Result, Times)
            catch
                Class:Reason:Stack ->
                    leave(Pool, Id, Place, Inst),
                    raised(Pool, {Class, Reason, Stack}, Times),
                    erlang:raise(Class, Reason, Stack)
            end;
        Error ->
            give(Pool, Id, Place),
            counted(Pool, Error, Times)
    end.

%% ---- places ---------------------------------------------------------------------------------

%% The row comes first: whoever dies with a place has one.
enter(#pool{words = Words, size = Size} = Pool, Wait) ->
    Id = wasmtime_pool_ticket:next(Words),
    case insert(Pool, Id) of
        true -> entered(wasmtime_pool_ticket:take(Words, Size, Id), Pool, Id, Wait);
        false -> {error, closed(Pool)}
    end.

entered({ok, Place}, _, Id, _) ->
    {ok, Id, Place};
entered(full, #pool{words = Words, max_queue = Max} = Pool, Id, Wait) ->
    Answer = case wasmtime_pool_ticket:waiting(Words) of
        Waiting when Waiting >= Max -> queue_full;
        _ when Wait =:= 0 -> queue_timeout;
        _ -> wasmtime_pool_server:wait(Pool, Id, Wait)
    end,
    case Answer of
        {ok, Place} ->
            {ok, Id, Place};
        unanswered ->
            forsake(Pool, Id),
            {error, refused(queue_timeout, Pool, Wait)};
        Refusal ->
            delete(Pool, Id),
            {error, refused(Refusal, Pool, Wait)}
    end;
entered(closed, Pool, Id, _) ->
    delete(Pool, Id),
    {error, closed(Pool)}.

%% The pool's process may give a place to one that waits no more: it writes the place and then looks
%% for the row, we do it the other way round, so that one of us gives the place back.
forsake(#pool{words = Words, size = Size} = Pool, Id) ->
    delete(Pool, Id),
    case wasmtime_pool_ticket:find(Words, Size, Id) of
        {ok, Place} -> give(Pool, Id, Place);
        none -> true
    end,
    wasmtime_pool_server:forsaken(Pool, Id).

%% After a wait the pool may have another module.
instance(#pool{server = Server} = Pool, Id, Limit, Pause) ->
    #pool{template = Template} = persistent_term:get(?POOL(Server), Pool),
    case wasmtime_call:make(Template) of
        {ok, Inst} -> kept(update(Pool, Id, wasmtime_keeper:bare(Inst)), Inst, Pool);
        {start, Inst} -> begun(kept(update(Pool, Id, wasmtime_keeper:bare(Inst)), Inst, Pool), Limit);
        {error, #{kind := pool_exhausted}} = Error -> no_room(Error, Pool, Id, Limit, Pause);
        Error -> Error
    end.

%% The row has the instance already: whoever ends the request ends its start section with it.
begun({ok, Inst}, {Start, _, Timeout}) ->
    case wasmtime_error:within(wasmtime_call:start(Inst, left(Start, Timeout)), Timeout) of
        {ok, _} -> {ok, Inst};
        Error -> ok = wasmtime:destroy(Inst), Error
    end;
begun(Error, _) ->
    Error.

%% A caller that was killed before its row named the instance leaves that to be collected, and nobody
%% is told when; others who use the module's slots come and go, too. So room is waited for as a place
%% is: as long as the request may wait.
no_room(Error, #pool{words = Words} = Pool, Id, {Start, Wait, _} = Limit, Pause) ->
    Left = left(Start, Wait),
    case wasmtime_pool_ticket:state(Words) of
        ended -> {error, closed(Pool)};
        _ when Left =:= 0 -> Error;
        _ -> timer:sleep(min(Pause, Left)), instance(Pool, Id, Limit, min(2 * Pause, ?LATER))
    end.

left(_, infinity) -> infinity;
left(Start, Ms) ->
    Passed = erlang:convert_time_unit(erlang:monotonic_time() - Start, native, millisecond),
    max(0, Ms - Passed).

%% Who ends all requests writes the state and then looks at the rows; we do it the other way round.
kept(Kept, Inst, #pool{words = Words} = Pool) ->
    case Kept andalso wasmtime_pool_ticket:state(Words) of
        State when State =:= open; State =:= closed ->
            {ok, Inst};
        _ ->
            ok = wasmtime:destroy(Inst),
            {error, closed(Pool)}
    end.

leave(Pool, Id, Place, Inst) ->
    ok = wasmtime:destroy(Inst),
    give(Pool, Id, Place).

give(#pool{words = Words} = Pool, Id, Place) ->
    case wasmtime_pool_ticket:give(Words, Place, Id) of
        {ok, true} -> ok = wasmtime_pool_server:freed(Pool);
        _ -> ok
    end,
    delete(Pool, Id).

%% The table is gone when the pool is.
insert(#pool{table = Table}, Id) ->
    try ets:insert(Table, {Id, self(), none}) catch error:badarg -> false end.

update(#pool{table = Table}, Id, Inst) ->
    try ets:update_element(Table, Id, {3, Inst}) catch error:badarg -> false end.

delete(#pool{table = Table}, Id) ->
    try ets:delete(Table, Id) catch error:badarg -> true end.

%% ---- what is counted and told ---------------------------------------------------------------

counted(#pool{stats = Stats} = Pool, Result, Times) ->
    ok = count(Stats, ending(Result), Times),
    stopped(Pool, Result, Times).

count(Stats, Ending, {Start, Queued, _}) ->
    ok = wasmtime_pool_stats:count(Stats, Ending),
    ok = wasmtime_pool_stats:time(Stats, queue, Queued),
    wasmtime_pool_stats:time(Stats, latency, erlang:monotonic_time() - Start).

ending({error, _}) -> failed;
ending(_) -> done.

stopped(Pool, Result, {_, _, Meta} = Times) ->
    emit(Pool, stop, durations(Times), maps:merge(Meta, outcome(Result))),
    Result.

outcome({error, Error}) -> #{result => error, error => Error};
outcome(_) -> #{result => ok}.

raised(#pool{stats = Stats} = Pool, {Class, Reason, Stack}, {_, _, Meta} = Times) ->
    ok = count(Stats, failed, Times),
    emit(Pool, exception, durations(Times),
         Meta#{kind => Class, reason => Reason, stacktrace => Stack}).

overloaded(#pool{stats = Stats, words = Words} = Pool, Queued, {error, Error}, Meta) ->
    ok = wasmtime_pool_stats:count(Stats, overloaded),
    Waiting = wasmtime_pool_ticket:waiting(Words),
    ok = wasmtime_pool_event:emit(Pool, [overload], #{queue_time => Queued, waiting => Waiting},
                                  Meta#{error => Error}).

durations({Start, Queued, _}) ->
    Now = erlang:monotonic_time(),
    #{duration => Now - Start, queue_time => Queued, monotonic_time => Now}.

emit(Pool, Name, Measurements, Meta) ->
    ok = wasmtime_pool_event:emit(Pool, [request, Name], Measurements, Meta).

%% ---- finding a pool, and refusals -----------------------------------------------------------

%% @doc The pool of that name or process on this node. What cannot be a pool raises `badarg'.
-spec find(term()) -> {ok, #pool{}} | {error, wasmtime_error:t()}.
find(Name) ->
    case wasmtime_name:find(Name) of
        Pid when is_pid(Pid), node(Pid) =:= node() -> published(Pid, Name);
        undefined -> {error, closed(Name)};
        _ -> {error, wasmtime_error:badarg(pool, pool, <<"the pool runs on another node">>)}
    end.

published(Pid, Name) ->
    case persistent_term:get(?POOL(Pid), none) of
        none -> {error, closed(Name)};
        Pool -> {ok, Pool}
    end.

refused(closed, Pool, _) -> closed(Pool);
refused(queue_full, #pool{name = Name, max_queue = Max, size = Size}, _) ->
    overload("pool ~0tp is full: size is ~w, and max_queue (~w) wait already", [Name, Size, Max]);
refused(queue_timeout, #pool{name = Name}, Wait) ->
    overload("the request found no place in pool ~0tp within ~w ms", [Name, Wait]).

overload(Format, Args) ->
    wasmtime_error:new(pool, overload, wasmtime_error:text(Format, Args)).

%% @doc The error of a request that comes too late.
-spec closed(#pool{} | term()) -> wasmtime_error:t().
closed(#pool{name = Name}) ->
    closed(Name);
closed(Name) ->
    Message = wasmtime_error:text("pool ~0tp is draining, drained or not running", [Name]),
    wasmtime_error:new(pool, closed, Message).
