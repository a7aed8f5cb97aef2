%% @private
%% Linear memory from Erlang: checks, and the choice of a scheduler by size.
%% Rule: `Name' is `{ok, Binary}', `{ok, undefined}' for the default memory, or `error'.
-module(wasmtime_memory).

-include("wasmtime_badarg.hrl").
-include("wasmtime_instance.hrl").
-include("wasmtime_text.hrl").

-export([read/4, write/4, size/2]).

%% Reads and writes of more bytes than this go to a dirty scheduler: copying them takes longer than
%% the way there. So do those that would wait for another visitor of the guest.
-define(DIRTY_BYTES, 262144).
%% No memory reaches this far; what lies beyond need not be told apart.
-define(BEYOND, 16#FFFFFFFFFFFFFFFF).

-type name() :: {ok, binary() | undefined} | error.

-spec read(tuple(), name(), term(), term()) -> {ok, binary()} | {error, wasmtime_error:t()}.
read(#wasmtime_instance{ref = Ref}, {ok, Name}, Offset, Length)
  when is_integer(Offset), Offset >= 0, is_integer(Length), Length >= 0 ->
    Far = min(Offset, ?BEYOND),
    case Length > ?DIRTY_BYTES of
        true -> wasmtime_nif:memory_read_dirty(Ref, Name, Far, min(Length, ?BEYOND));
        false ->
            case wasmtime_nif:memory_read(Ref, Name, Far, Length) of
                dirty -> wasmtime_nif:memory_read_dirty(Ref, Name, Far, Length);
                Result -> Result
            end
    end;
read(#wasmtime_instance{}, Name, _, _) ->
    bad_memory(Name, "offset and length must be integers of 0 or more");
read(_, _, _, _) ->
    ?BADARG(instance).

-spec write(tuple(), name(), term(), term()) -> ok | {error, wasmtime_error:t()}.
write(#wasmtime_instance{ref = Ref}, {ok, Name}, Offset, Data)
  when is_integer(Offset), Offset >= 0, is_binary(Data) ->
    Far = min(Offset, ?BEYOND),
    case byte_size(Data) > ?DIRTY_BYTES of
        true -> wasmtime_nif:memory_write_dirty(Ref, Name, Far, Data);
        false ->
            case wasmtime_nif:memory_write(Ref, Name, Far, Data) of
                dirty -> wasmtime_nif:memory_write_dirty(Ref, Name, Far, Data);
                Result -> Result
            end
    end;
write(#wasmtime_instance{} = Inst, Name, Offset, Data) when is_list(Data) ->
    try iolist_to_binary(Data) of
        Bin -> write(Inst, Name, Offset, Bin)
    catch
        error:badarg -> bad_memory(Name, "the data must be iodata")
    end;
write(#wasmtime_instance{}, Name, _, _) ->
    bad_memory(Name, "the offset must be an integer of 0 or more, the data iodata");
write(_, _, _, _) ->
    ?BADARG(instance).

-spec size(tuple(), name()) ->
          {ok, {non_neg_integer(), non_neg_integer()}} | {error, wasmtime_error:t()}.
size(#wasmtime_instance{ref = Ref}, {ok, Name}) ->
    case wasmtime_nif:memory_size(Ref, Name) of
        dirty -> wasmtime_nif:memory_size_dirty(Ref, Name);
        Result -> Result
    end;
size(#wasmtime_instance{}, error) -> bad_memory(error, "");
size(_, _) -> ?BADARG(instance).

bad_memory(error, _) -> badarg(memory, "the name must be " ?TEXT);
bad_memory({ok, _}, Text) -> badarg(memory, Text).

badarg(Class, Text) ->
    {error, wasmtime_error:badarg(Class, list_to_binary(Text))}.
