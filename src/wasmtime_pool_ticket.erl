%% @private
%% Places of a pool and who holds them, in words that any process may change without a message.
%% Rule: a place is taken and given back in one step that names its holder, so that a process may
%% die between any two steps and leave nothing that cannot be told.
-module(wasmtime_pool_ticket).

-export([new/1, next/1, take/3, claim/3, give/3, find/3, held/2, holders/2]).
-export([state/1, set_state/2, waiting/1, set_waiting/2, first_time/1]).
-export_type([words/0, id/0, place/0, state/0]).

-type words() :: atomics:atomics_ref().
-type id() :: pos_integer().
%% A request.
-type place() :: pos_integer().
%% The word that a request's id stands in while it holds a place.
-type state() :: open | closed | ended.
%% `closed' takes no new requests, `ended' has ended those that ran.

%% The last id that was given.
-define(ID, 1).
-define(STATE, 2).
%% How many wait, as the server told last; nobody passes them by.
-define(WAITING, 3).
%% A place that was free lately.
-define(HINT, 4).
%% Whether something that is told once was told.
-define(TOLD, 5).
-define(HEADER, 5).

%% @doc Words of a pool with so many places.
-spec new(pos_integer()) -> words().
new(Size) ->
    Words = atomics:new(?HEADER + Size, [{signed, false}]),
    ok = atomics:put(Words, ?HINT, ?HEADER + 1),
    Words.

%% @doc The id of a new request.
-spec next(words()) -> id().
next(Words) -> atomics:add_get(Words, ?ID, 1).

%% @doc Takes a free place, when nobody waits for one.
-spec take(words(), pos_integer(), id()) -> {ok, place()} | full | closed.
take(Words, Size, Id) ->
    case {state(Words), waiting(Words)} of
        {open, 0} -> recheck(Words, claim(Words, Size, Id), Id);
        {open, _} -> full;
        _ -> closed
    end.

%% Who closes the pool writes the state and then looks at the places; we do it the other way round,
%% so that one of us sees the other.
recheck(Words, {ok, Place} = Taken, Id) ->
    case state(Words) of
        open -> Taken;
        _ -> _ = give(Words, Place, Id), closed
    end;
recheck(_, full, _) ->
    full.

%% @doc Takes a free place, whoever waits and whatever the state.
-spec claim(words(), pos_integer(), id()) -> {ok, place()} | full.
claim(Words, Size, Id) ->
    claim(Words, ?HEADER + Size, Id, atomics:get(Words, ?HINT), Size).

claim(_, _, _, _, 0) ->
    full;
claim(Words, Last, Id, Place, Left) when Place =< Last ->
    case atomics:get(Words, Place) =:= 0 andalso atomics:compare_exchange(Words, Place, 0, Id) of
        ok -> {ok, Place};
        _ -> claim(Words, Last, Id, Place + 1, Left - 1)
    end;
claim(Words, Last, Id, _, Left) ->
    claim(Words, Last, Id, ?HEADER + 1, Left).

%% @doc Gives a place back, and says whether somebody waits for one; `false' when it was given back
%% already.
-spec give(words(), place(), id()) -> {ok, boolean()} | false.
give(Words, Place, Id) ->
    case atomics:compare_exchange(Words, Place, Id, 0) of
        ok ->
            ok = atomics:put(Words, ?HINT, Place),
            {ok, waiting(Words) > 0};
        _ ->
            false
    end.

%% @doc The place that a request holds.
-spec find(words(), pos_integer(), id()) -> {ok, place()} | none.
find(Words, Size, Id) -> find(Words, ?HEADER + Size, Id, ?HEADER + 1).

find(_, Last, _, Place) when Place > Last -> none;
find(Words, Last, Id, Place) ->
    case atomics:get(Words, Place) of
        Id -> {ok, Place};
        _ -> find(Words, Last, Id, Place + 1)
    end.

%% @doc How many places are held.
-spec held(words(), pos_integer()) -> non_neg_integer().
held(Words, Size) -> length(holders(Words, Size)).

%% @doc Who holds a place.
-spec holders(words(), pos_integer()) -> [id()].
holders(Words, Size) ->
    [Id || Place <- lists:seq(?HEADER + 1, ?HEADER + Size),
           Id <- [atomics:get(Words, Place)], Id =/= 0].

-spec state(words()) -> state().
state(Words) -> element(1 + atomics:get(Words, ?STATE), {open, closed, ended}).

-spec set_state(words(), state()) -> ok.
set_state(Words, closed) -> atomics:put(Words, ?STATE, 1);
set_state(Words, ended) -> atomics:put(Words, ?STATE, 2).

-spec waiting(words()) -> non_neg_integer().
waiting(Words) -> atomics:get(Words, ?WAITING).

-spec set_waiting(words(), non_neg_integer()) -> ok.
set_waiting(Words, Waiting) -> atomics:put(Words, ?WAITING, Waiting).

%% @doc True once in the life of a pool.
-spec first_time(words()) -> boolean().
first_time(Words) -> atomics:exchange(Words, ?TOLD, 1) =:= 0.
